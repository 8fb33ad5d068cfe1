// SPDX-License-Identifier: Apache-2.0
#include "bpf_call.h"

#include "libc_function.h"

#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef long (*syscall_function)(long, ...);

static syscall_function libc_syscall(void) {
    static syscall_function found;
    if (!found)
        found = (syscall_function)libc_function("syscall");
    return found;
}

long bpf_call(int command, const union bpf_attr *attributes, unsigned size) {
    return libc_syscall()(__NR_bpf, (long)command, attributes, (unsigned long)size);
}

long syscall(long number, ...) {
    long argument[6];
    va_list arguments;
    va_start(arguments, number);
    for (int i = 0; i < 6; i++)
        argument[i] = va_arg(arguments, long);
    va_end(arguments);
    if (number == __NR_bpf)
        return bpf_call_seen(argument[0], (const union bpf_attr *)argument[1], argument[2]);
    return libc_syscall()(number, argument[0], argument[1], argument[2], argument[3], argument[4],
                          argument[5]);
}

bool bpf_call_loads(int command, const union bpf_attr *attributes, const char *program) {
    return command == BPF_PROG_LOAD && program &&
           !strncmp(attributes->prog_name, program, sizeof(attributes->prog_name) - 1);
}
