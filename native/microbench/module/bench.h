// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// A benchmark as one object of the module. What includes it defines NAME and KERNEL.
#include <linux/if_ether.h>
#include <linux/random.h>
#include <linux/timekeeping.h>

#include "module.h"

#define COUNTER
#define SUBPROGRAM static __always_inline
#define CLOCK() ktime_get_mono_fast_ns()
#define WORLD_RANDOM(state) get_random_u32()
#define WORLD_RANDOM_BYTES(state) random_bytes()

static __always_inline __u64 random_bytes(void) {
    __u32 random;

    get_random_bytes(&random, sizeof(random));
    return random;
}

#include "../kernels/common.h"

#include KERNEL

#include "../kernels/measure.h"

#ifndef WORKING_SET_BYTES
#define WORKING_SET_BYTES sizeof(struct working_set)
#endif

#define JOINED(left, right) left##right
#define JOIN(left, right) JOINED(left, right)
#define FUNCTION JOIN(microbench_, NAME)
#define DESCRIPTION JOIN(benchmark_, NAME)
#define STRING(word) #word
#define WORD(word) STRING(word)

static noinline void FUNCTION(struct bench_record *record, void *set, void *frame) {
    measure(record, set, frame, (char *)frame + FRAME_BYTES);
}

const struct benchmark DESCRIPTION = {WORD(NAME), WORKING_SET_BYTES, FUNCTION};
