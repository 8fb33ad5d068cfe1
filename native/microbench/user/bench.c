// SPDX-License-Identifier: Apache-2.0
// A benchmark as a user-space function: cc -O2 -fPIC -shared -DKERNEL='"kernels/NAME.h"'.
#include <linux/if_ether.h>
#include <stddef.h>

#include "../record.h"
#include "clock.h"

#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#define noinline __attribute__((noinline))
#define COUNTER
#define SUBPROGRAM static __always_inline
#define CLOCK() now_ns()

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
