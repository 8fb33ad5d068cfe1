// SPDX-License-Identifier: Apache-2.0
// BPF_PROG_LOAD of one program alone, from just before to just after the system call, though libbpf makes it.
#pragma once

struct load_call {
    const char *program; // as the object names it
    unsigned repetition;
    long long took_ns; // -1 before the call
    int error;
};

extern struct load_call load_call;
