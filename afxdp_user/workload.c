// SPDX-License-Identifier: Apache-2.0
#include "workload.h"
#include "fail.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096

static void *symbol(void *library, const char *path, const char *name) {
    void *address = dlsym(library, name);
    if (!address)
        fail("workload", EINVAL, NULL, "%s does not export %s", path, name);
    return address;
}

static void read_all(int fd, unsigned char *bytes, size_t count, const char *path) {
    for (size_t done = 0; done < count;) {
        ssize_t part = read(fd, bytes + done, count - done);
        if (part <= 0)
            fail("init", part < 0 ? errno : EIO, NULL, "%s cannot be read to its end", path);
        done += part;
    }
}

// Returns how many states a file of this size holds; a size that is not a multiple is an error.
static size_t count_states(const char *path, size_t bytes, size_t state_bytes) {
    if (!bytes && !state_bytes)
        return 0;
    if (!bytes || !state_bytes || bytes % state_bytes)
        fail("init", EINVAL, NULL,
             "%s has %zu bytes, which is not a multiple of the workload's state of %zu bytes", path, bytes,
             state_bytes);
    return bytes / state_bytes;
}

static void read_init(struct workload *workload, const char *path) {
    struct stat status;
    int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &status))
        fail("init", errno, NULL, "%s cannot be read: %s", path, strerror(errno));
    size_t bytes = status.st_size;
    workload->init_count = count_states(path, bytes, workload->state_bytes);
    workload->init = malloc(bytes + 1);
    if (!workload->init)
        fail("init", ENOMEM, NULL, "no memory for the %zu bytes of %s", bytes, path);
    read_all(fd, workload->init, bytes, path);
    close(fd);
}

void workload_open(struct workload *workload, const char *library, const char *init) {
    char path[PATH_MAX]; // dlopen() searches the system's libraries for a name without a slash
    if (!realpath(library, path))
        fail("workload", errno, NULL, "%s: %s", library, strerror(errno));
    void *handle = dlopen(path, RTLD_NOW);
    if (!handle)
        fail("workload", EINVAL, NULL, "%s", dlerror());
    workload->run =
        (unsigned long (*)(void *, unsigned char *, unsigned))symbol(handle, path, "xdplab_workload");
    workload->reads_frame = dlsym(handle, "xdplab_reads_frame");
    workload->state_bytes = *(const unsigned long *)symbol(handle, path, "xdplab_state_bytes");
    if (init)
        read_init(workload, init);
}

void *workload_state(const struct workload *workload, unsigned queue) {
    void *state;
    size_t bytes = workload->state_bytes;
    if (posix_memalign(&state, PAGE, bytes ? bytes : 1))
        fail("init", ENOMEM, NULL, "no memory for a state of %zu bytes", bytes);
    memset(state, 0, bytes);
    if (workload->init_count)
        memcpy(state, workload->init + queue % workload->init_count * bytes, bytes);
    return state;
}
