// SPDX-License-Identifier: Apache-2.0
// A benchmark as a user-space function: cc -O2 -fPIC -shared -DKERNEL='"kernels/NAME.h"'.
#include <linux/if_ether.h>
#include <stddef.h>
#include <time.h>

#include "../record.h"

#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#define noinline __attribute__((noinline))
#define COUNTER
#define SUBPROGRAM static __always_inline
#define CLOCK() monotonic_ns()

static __always_inline __u64 monotonic_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}

#include "../kernels/common.h"

#include KERNEL

#include "../kernels/measure.h"

#ifndef WORKING_SET_BYTES
#define WORKING_SET_BYTES sizeof(struct working_set)
#endif

const unsigned long microbench_bytes = WORKING_SET_BYTES;

void microbench(struct bench_record *record, void *set, void *frame) {
    measure(record, set, frame, (char *)frame + FRAME_BYTES);
}
