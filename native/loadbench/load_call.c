// SPDX-License-Identifier: Apache-2.0
// libbpf reaches the kernel through libc's syscall(). This definition comes before libc's in the dynamic
// linker's search, so libbpf's calls pass here. Its feature probes load programs too, but under names of
// their own.
#include "load_call.h"
#include "bench.h"
#include "clock.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct load_call load_call;

static bool is_ours(long number, const long *argument) {
    if (number != __NR_bpf || argument[0] != BPF_PROG_LOAD || !load_call.program)
        return false;
    const union bpf_attr *attributes = (const union bpf_attr *)argument[1];
    return !strncmp(attributes->prog_name, load_call.program, sizeof(attributes->prog_name) - 1);
}

// A sampling profiler needs more of one call than a repetition has.
static void call_again(long (*call)(long, ...), const long *argument) {
    for (unsigned int i = 0; i < bench.again; i++) {
        long fd = call(__NR_bpf, argument[0], argument[1], argument[2]);
        if (fd >= 0)
            close(fd);
    }
}

long syscall(long number, ...) {
    static long (*libc_syscall)(long, ...);
    long argument[6];
    va_list arguments;
    va_start(arguments, number);
    for (int i = 0; i < 6; i++)
        argument[i] = va_arg(arguments, long);
    va_end(arguments);
    if (!libc_syscall)
        libc_syscall = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    bool ours = is_ours(number, argument);
    if (ours)
        bench_begin(load_call.repetition);
    long long start = now_ns();
    long result =
        libc_syscall(number, argument[0], argument[1], argument[2], argument[3], argument[4], argument[5]);
    long long end = now_ns();
    int error = errno;
    if (ours) {
        load_call.took_ns = end - start;
        load_call.error = result < 0 ? error : 0;
        bench_end(load_call.repetition);
        call_again(libc_syscall, argument);
    }
    errno = error;
    return result;
}
