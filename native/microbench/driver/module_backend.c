// SPDX-License-Identifier: Apache-2.0
// The benchmark in the kernel module, reached through its files in /proc.
#include "backend.h"
#include "fail.h"
#include "module_file.h"
#include "options.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int call_fd;

static int open_file(const char *file, int flags) {
    char path[PATH_MAX];
    int fd;

    snprintf(path, sizeof(path), "/proc/xdplab_microbench/%s/%s", options.benchmark, file);
    fd = open(path, flags | O_CLOEXEC);
    if (fd < 0)
        fail("module", errno, NULL, "opening %s: %s", path, strerror(errno));
    return fd;
}

// The kernel takes at most a page at a time from some callers.
static void write_state(void) {
    int fd = open_file("state", O_WRONLY);
    size_t at = 0;

    while (at < state_bytes) {
        ssize_t done = pwrite(fd, (const char *)state + at, state_bytes - at, at);

        if (done <= 0)
            fail("module", done ? errno : ENOSPC, NULL, "writing the state of %s: %s", options.benchmark,
                 strerror(done ? errno : ENOSPC));
        at += done;
    }
    close(fd);
}

static struct image module_load(void) {
    module_insert(options.object);
    if (state_bytes)
        write_state();
    call_fd = open_file("call", O_RDWR);
    return (struct image){};
}

static void module_call(struct bench_record *record) {
    if (pwrite(call_fd, record, sizeof(*record), 0) != sizeof(*record) ||
        pread(call_fd, record, sizeof(*record), 0) != sizeof(*record))
        fail("module", errno, NULL, "calling %s in the module: %s", options.benchmark, strerror(errno));
}

static void module_unload(void) {
    close(call_fd);
    module_remove(options.object);
}

// Its functions are of many benchmarks: the file tells which part is whose.
static void print_text(void) { print_code(module_text(), 0); }

const struct backend module_backend = {"module", module_load, module_call, module_unload, print_text};
