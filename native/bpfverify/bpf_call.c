// SPDX-License-Identifier: Apache-2.0
#include "bpf_call.h"

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

long bpf_call(int command, void *attributes, unsigned int size) {
    static long (*libc_syscall)(long, ...);
    if (!libc_syscall)
        libc_syscall = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    return libc_syscall(__NR_bpf, command, attributes, size);
}
