// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// How many primes there are up to 100, by trial division.
#define HIGHEST 100

// The type whose divisions are made.
#ifndef NUMBER
#define NUMBER __u64
#endif

// Or a compiler asks the lowest bit instead of dividing by two.
#ifndef FIRST_DIVISOR
#define FIRST_DIVISOR(divisor) KEEP(divisor)
#endif

struct working_set {
    __u64 unused;
};

static __always_inline int is_prime(NUMBER number) {
    NUMBER divisor = 2;

    if (number < 2)
        return 0;
    FIRST_DIVISOR(divisor);
    NO_UNROLL
    for (; divisor * divisor <= number; divisor++)
        if (number % divisor == 0)
            return 0;
    return 1;
}

static __always_inline __u64 kernel(struct working_set *set, void *data, void *data_end, __u64 input) {
    NUMBER highest = HIGHEST;
    __u64 count = 0;

    KEEP(highest); // the verifier still knows it; the compiler could work the answer out
    NO_UNROLL
    for (NUMBER number = 0; number <= highest; number++)
        count += is_prime(number);
    return count;
}
