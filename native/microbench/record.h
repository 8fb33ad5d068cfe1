// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// What a call is given and what it leaves, in every backend.
#ifndef MICROBENCH_RECORD_H
#define MICROBENCH_RECORD_H

#include <linux/types.h>

#define FRAME_BYTES 256 // of the frame that workload `packet` walks through

// `begin` and `end`: CLOCK_MONOTONIC, in nanoseconds, right before and after the work.
struct bench_record {
    __u64 input;
    __u64 begin;
    __u64 end;
    __u64 result;
};

#endif
