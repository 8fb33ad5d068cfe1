// SPDX-License-Identifier: Apache-2.0
// One BPF_PROG_LOAD, measured, for either loader. The only place that loads what is to be
// verified.
#pragma once

#include "record.h"

#include <stdbool.h>

struct effort {
    size_t loads;        // of each program
    long long budget_ns; // no further load once those of a program have taken so long
    unsigned log_level;
    unsigned kernel_version; // for kprobe programs on kernels that compare it
    unsigned program_flags;  // added to each program's own
    bool watch;              // count memory and branches: such loads are not timed
    const char *logs;        // directory for logs of each step, one more load each; NULL for none
    unsigned log_bytes;      // the longest of them
};

extern struct effort effort;

// Loads by `attributes` of `size` bytes, with the record's log. Fills in hash, verdict, times, sizes; returns
// the last load's descriptor, or -1.
int measure_load(struct record *record, const union bpf_attr *attributes, unsigned size);
