// SPDX-License-Identifier: Apache-2.0
// A backend loads a benchmark, calls it once when asked, and takes it out again; all end the program on
// error.
#ifndef MICROBENCH_BACKEND_H
#define MICROBENCH_BACKEND_H

#include "../record.h"

#include <stddef.h>

// Of BPF: 0 where it is interpreted.
struct image {
    unsigned jited_bytes;
    unsigned xlated_bytes;
};

struct backend {
    const char *name;
    struct image (*load)(void);
    void (*call)(struct bench_record *record);
    void (*unload)(void);
    void (*print_code)(void); // where its code lies: a line of each piece
};

// Prints where a piece of code lies; 0 bytes: only where it begins is known.
void print_code(unsigned long long start, unsigned long long bytes);

extern const struct backend bpf_backend, module_backend, user_backend;

// The first contents of the working set, and how many bytes they are (0: none given).
extern const void *state;
extern size_t state_bytes;

#endif
