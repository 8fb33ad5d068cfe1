// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Random cells of a matrix are read and written through a pointer. The random source is ours, begins with the
// input, and is the same everywhere; NEXT_RANDOM is another one where a benchmark is to show what that does.
#define ROWS 64
#define COLUMNS 64
#define STEPS 1000

#ifndef NEXT_RANDOM
#define NEXT_RANDOM(state) xorshift(state)
#endif

struct working_set {
    __u64 cells[ROWS][COLUMNS];
};

static __always_inline __u64 kernel(struct working_set *set, void *data, void *data_end, __u64 input) {
    __u64 random = input | 1, sum = 0;

    NO_UNROLL
    for (int i = 0; i < STEPS; i++) {
        __u64 *cell;

        random = NEXT_RANDOM(random);
        cell = &set->cells[random % ROWS][random / ROWS % COLUMNS];
        *cell += random;
        sum ^= *cell;
    }
    return sum;
}
