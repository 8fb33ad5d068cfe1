// SPDX-License-Identifier: Apache-2.0
// Preloaded: the N-th call that changes a file below a folder is a kill, a torn write, or an error.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum verdict { PASS, FAIL, TEAR };

static char folder[512];
static atomic_long seen;
static long first, last;
static int with_error;
static bool torn;
static int list = -1;

// Count from here on. `at`: the first call that is hit, 0 for none; `times`: how many are; `number`: the
// error that they return, 0 for a kill; `tear`: half of a write is made before the kill. `names`: a file that
// gets a line per call.
void fault_arm(const char *below, long at, long times, int number, int tear, const char *names) {
    snprintf(folder, sizeof(folder), "%s", below);
    first = at;
    last = at + times;
    with_error = number;
    torn = tear;
    atomic_store(&seen, 0);
    list = *names ? open(names, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644) : -1;
}

static void die(void) {
    kill(getpid(), SIGKILL);
    pause();
}

static enum verdict at_path(const char *call, const char *path, bool fills) {
    if (!folder[0] || strncmp(path, folder, strlen(folder)))
        return PASS;
    long number = atomic_fetch_add(&seen, 1) + 1;
    if (list >= 0)
        dprintf(list, "%ld\t%s\t%s\n", number, call, path + strlen(folder));
    if (!first || number < first || number >= last)
        return PASS;
    if (with_error) {
        if (with_error == ENOSPC && !fills) // what needs no room never says that there is none
            return PASS;
        errno = with_error;
        return FAIL;
    }
    if (torn && !strcmp(call, "write"))
        return TEAR;
    die();
    return FAIL;
}

static enum verdict at_fd(const char *call, int fd, bool fills) {
    char link[64], path[4096];
    if (!folder[0])
        return PASS;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof(path) - 1);
    if (size <= 0)
        return PASS;
    path[size] = 0;
    return at_path(call, path, fills);
}

static enum verdict at_entry(const char *call, int dir, const char *name, bool fills) {
    char link[64], path[8192];
    if (!folder[0])
        return PASS;
    if (name[0] == '/' || dir == AT_FDCWD)
        return at_path(call, name, fills);
    snprintf(link, sizeof(link), "/proc/self/fd/%d", dir);
    ssize_t size = readlink(link, path, 4096);
    if (size <= 0)
        return PASS;
    snprintf(path + size, sizeof(path) - size, "/%s", name);
    return at_path(call, path, fills);
}

#define REAL(type, name, ...)                                                                                \
    static type (*real)(__VA_ARGS__);                                                                        \
    if (!real)                                                                                               \
    real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

ssize_t write(int fd, const void *data, size_t size) {
    REAL(ssize_t, write, int, const void *, size_t);
    enum verdict verdict = at_fd("write", fd, true);
    if (verdict == TEAR) {
        ssize_t made = real(fd, data, size / 2);
        (void)made;
        die();
    }
    return verdict == FAIL ? -1 : real(fd, data, size);
}

#define BY_FD(type, name, call, fills, parameters, arguments, ...)                                           \
    type name parameters {                                                                                   \
        REAL(type, name, __VA_ARGS__);                                                                       \
        return at_fd(call, fd, fills) == FAIL ? -1 : real arguments;                                         \
    }
#define BY_PATH(name, fills, parameters, arguments, ...)                                                     \
    int name parameters {                                                                                    \
        REAL(int, name, __VA_ARGS__);                                                                        \
        return at_path(#name, path, fills) == FAIL ? -1 : real arguments;                                    \
    }
#define BY_ENTRY(name, call, fills, parameters, arguments, ...)                                              \
    int name parameters {                                                                                    \
        REAL(int, name, __VA_ARGS__);                                                                        \
        return at_entry(call, dir, path, fills) == FAIL ? -1 : real arguments;                               \
    }

BY_FD(ssize_t, pwrite64, "pwrite", true, (int fd, const void *data, size_t size, off64_t at),
      (fd, data, size, at), int, const void *, size_t, off64_t)
BY_FD(ssize_t, writev, "writev", true, (int fd, const struct iovec *parts, int count), (fd, parts, count),
      int, const struct iovec *, int)
BY_FD(ssize_t, sendfile64, "sendfile", true, (int fd, int from, off64_t *at, size_t size),
      (fd, from, at, size), int, int, off64_t *, size_t)
BY_FD(int, fsync, "fsync", true, (int fd), (fd), int)
BY_FD(int, fdatasync, "fdatasync", true, (int fd), (fd), int)
BY_FD(int, syncfs, "syncfs", true, (int fd), (fd), int)
BY_FD(int, ftruncate64, "ftruncate", false, (int fd, off64_t size), (fd, size), int, off64_t)
BY_FD(int, fchmod, "fchmod", false, (int fd, mode_t mode), (fd, mode), int, mode_t)
BY_PATH(unlink, false, (const char *path), (path), const char *)
BY_PATH(rmdir, false, (const char *path), (path), const char *)
BY_PATH(mkdir, true, (const char *path, mode_t mode), (path, mode), const char *, mode_t)
BY_PATH(chmod, false, (const char *path, mode_t mode), (path, mode), const char *, mode_t)
BY_PATH(rename, true, (const char *path, const char *to), (path, to), const char *, const char *)
BY_ENTRY(unlinkat, "unlink", false, (int dir, const char *path, int flags), (dir, path, flags), int,
         const char *, int)
BY_ENTRY(mkdirat, "mkdir", true, (int dir, const char *path, mode_t mode), (dir, path, mode), int,
         const char *, mode_t)

#define WRITES (O_CREAT | O_TRUNC | O_WRONLY | O_RDWR)
#define OPEN(name)                                                                                           \
    int name(const char *path, int flags, ...) {                                                             \
        REAL(int, name, const char *, int, ...);                                                             \
        va_list rest;                                                                                        \
        va_start(rest, flags);                                                                               \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;                              \
        va_end(rest);                                                                                        \
        return (flags & WRITES) && at_path("open", path, flags & O_CREAT) == FAIL ? -1                       \
                                                                                  : real(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)
#define OPENAT(name)                                                                                         \
    int name(int dir, const char *path, int flags, ...) {                                                    \
        REAL(int, name, int, const char *, int, ...);                                                        \
        va_list rest;                                                                                        \
        va_start(rest, flags);                                                                               \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;                              \
        va_end(rest);                                                                                        \
        return (flags & WRITES) && at_entry("open", dir, path, flags & O_CREAT) == FAIL                      \
                   ? -1                                                                                      \
                   : real(dir, path, flags, mode);                                                           \
    }
OPENAT(openat)
OPENAT(openat64)
