// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// A loop that adds up what the clock says: nothing a compiler could know beforehand.
#define READS 100

struct working_set {
    __u64 unused;
};

static __always_inline __u64 kernel(struct working_set *set, void *data, void *data_end, __u64 input) {
    __u64 sum = 0;

    NO_UNROLL
    for (int i = 0; i < READS; i++)
        sum += CLOCK();
    return sum;
}
