// SPDX-License-Identifier: Apache-2.0
#pragma once

// Times in ns, in buckets of equal relative width: the BPF programs and user space fill them alike.

#include <linux/types.h>
#include <stdbool.h>

// Log-linear: values below 2^SUB_BITS exactly, above it 2^SUB_BITS buckets an octave: 0.8 % wide.
#define SUB_BITS 7
#define SUB_BUCKETS (1 << SUB_BITS)
#define VALUE_BITS 36 // 68 s
#define OCTAVES (VALUE_BITS - SUB_BITS + 1)
#define HISTOGRAM_BUCKETS (OCTAVES * SUB_BUCKETS)
#define LARGEST_VALUE ((1ULL << VALUE_BITS) - 1)

struct histogram {
    __u64 sum;
    __u64 min; // HISTOGRAM_EMPTY.min until there is one
    __u64 max;
    __u64 octave; // of the last value: the next one is likely to lie there too
    __u64 buckets[HISTOGRAM_BUCKETS];
};

#define HISTOGRAM_EMPTY ((struct histogram){.min = ~0ULL})

#ifdef __bpf__
// These instructions bound the index for the verifier, however the compiler has compared it before: clang 19
// and newer compare one register and index by another. The compiler cannot see through the asm. It can
// neither drop the bound nor use an older copy of the index.
static inline __attribute__((always_inline)) __u64 at_most(__u64 index, const __u64 last) {
    asm volatile("if %[index] <= %[last] goto +1\n\t"
                 "%[index] = %[last]"
                 : [index] "+r"(index)
                 : [last] "i"(last));
    return index;
}
#else
#define at_most(index, last) (index)
#endif

// The same of less than 2^32, without a branch: values that come at random would be mispredicted.
static inline __attribute__((always_inline)) __u32 log2_of_random(__u32 value) {
    static const __u8 by_product[32] = {0, 9,  1,  10, 13, 21, 2,  29, 11, 14, 16, 18, 22, 25, 3, 30,
                                        8, 12, 20, 28, 15, 17, 24, 7,  19, 27, 23, 6,  26, 5,  4, 31};

    value |= value >> 1;
    value |= value >> 2;
    value |= value >> 4;
    value |= value >> 8;
    value |= value >> 16;
    return by_product[value * 0x07c4acddu >> 27]; // Leiserson, Prokop, Randall 1998
}

static inline __attribute__((always_inline)) __u32 log2_floor(__u64 value) {
    __u32 result = 0;

#define HALVE(bits)                                                                                          \
    if (value >> (bits)) {                                                                                   \
        value >>= (bits);                                                                                    \
        result += (bits);                                                                                    \
    }
    HALVE(32)
    HALVE(16)
    HALVE(8)
    HALVE(4)
    HALVE(2)
#undef HALVE
    return result + (value >> 1);
}

// The octave a value lies in: mostly the one of the value before.
static inline __attribute__((always_inline)) __u32 find_octave(struct histogram *histogram, __u64 ns) {
    __u32 octave = histogram->octave;

    if (octave && ns >> (octave - 1) >> SUB_BITS == 1)
        return octave;
    octave = ns < SUB_BUCKETS ? 0 : log2_floor(ns) - SUB_BITS + 1;
    histogram->octave = octave;
    return octave;
}

// Returns false, and records nothing, for what is larger than LARGEST_VALUE.
static inline __attribute__((always_inline)) bool histogram_record(struct histogram *histogram, __u64 ns) {
    __u32 octave = find_octave(histogram, ns);
    __u64 sub = (octave ? ns >> (octave - 1) : ns) & (SUB_BUCKETS - 1);
    __u64 bucket = (__u64)octave * SUB_BUCKETS + sub;

    if (bucket >= HISTOGRAM_BUCKETS)
        return false;
    histogram->buckets[at_most(bucket, HISTOGRAM_BUCKETS - 1)]++;
    histogram->sum += ns;
    if (ns < histogram->min)
        histogram->min = ns;
    if (ns > histogram->max)
        histogram->max = ns;
    return true;
}

// The same for times that have no bound of their own: what is larger counts as LARGEST_VALUE.
static inline __attribute__((always_inline)) void histogram_record_capped(struct histogram *histogram,
                                                                          __u64 ns) {
    histogram_record(histogram, ns < LARGEST_VALUE ? ns : LARGEST_VALUE);
}
