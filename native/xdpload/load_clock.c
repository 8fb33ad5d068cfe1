// SPDX-License-Identifier: Apache-2.0
// libbpf reaches the kernel through libc's syscall(). This definition comes before libc's in the dynamic
// linker's search, so libbpf's calls pass here, and BPF_PROG_LOAD is timed from just before to just after the
// system call: no ELF parsing, relocation, map creation or feature probe is in it. Feature probes load
// programs too, hence the time is kept by the file descriptor the kernel returned. `strace -T -e bpf` shows
// the same calls.
#define _GNU_SOURCE
#include "load_clock.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#define TRACKED_FDS 1024

static long long load_ns[TRACKED_FDS];
static char watched[BPF_OBJ_NAME_LEN];
static int first_errno;

static long long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void remember(long fd, const union bpf_attr *attr, long long elapsed_ns) {
    if (fd >= 0 && fd < TRACKED_FDS)
        load_ns[fd] = elapsed_ns;
    else if (fd < 0 && !first_errno && !strncmp(attr->prog_name, watched, sizeof(watched) - 1))
        first_errno = errno;
}

long syscall(long number, ...) {
    static long (*libc_syscall)(long, ...);
    if (!libc_syscall)
        libc_syscall = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");

    long argument[6];
    va_list arguments;
    va_start(arguments, number);
    for (int i = 0; i < 6; i++)
        argument[i] = va_arg(arguments, long);
    va_end(arguments);

    long long start = now_ns();
    long result =
        libc_syscall(number, argument[0], argument[1], argument[2], argument[3], argument[4], argument[5]);
    long long end = now_ns();
    if (number == __NR_bpf && (int)argument[0] == BPF_PROG_LOAD)
        remember(result, (const union bpf_attr *)argument[1], end - start);
    return result;
}

long long load_clock_ns(int program_fd) {
    if (program_fd < 0 || program_fd >= TRACKED_FDS || !load_ns[program_fd])
        return -1;
    return load_ns[program_fd];
}

void load_clock_watch(const char *program_name) {
    strncpy(watched, program_name, sizeof(watched) - 1);
    first_errno = 0;
}

int load_clock_first_errno(void) { return first_errno; }
