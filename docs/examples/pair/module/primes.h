/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The work, word for word the same in both directories. */
static __always_inline int is_prime(__u64 number) {
    __u64 divisor;

    if (number < 2)
        return 0;
    for (divisor = 2; divisor * divisor <= number; divisor++)
        if (number % divisor == 0)
            return 0;
    return 1;
}

static __always_inline int count_primes(void) {
    __u64 highest = 100, number;
    int count = 0;

    __asm__ volatile("" : "+r"(highest)); // nothing for the compiler to work out beforehand
    for (number = 0; number <= highest; number++)
        count += is_prime(number);
    return count;
}
