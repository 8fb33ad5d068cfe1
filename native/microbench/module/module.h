// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// How the module knows its benchmarks.
#ifndef MICROBENCH_MODULE_H
#define MICROBENCH_MODULE_H

#include "../record.h"

struct benchmark {
    const char *name;
    size_t bytes; // of its working set
    void (*run)(struct bench_record *record, void *set, void *frame);
};

#endif
