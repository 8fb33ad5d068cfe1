// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// What every kernel may use. The world that includes it (BPF, module, user space) defines CLOCK().
#ifndef MICROBENCH_COMMON_H
#define MICROBENCH_COMMON_H

// The compiler must have the value here, and forget what it knows of it; no instruction is made of this.
#define KEEP(value) __asm__ volatile("" : "+r"(value))

#ifdef __clang__
#define NO_UNROLL _Pragma("clang loop unroll(disable)")
#else
#define NO_UNROLL _Pragma("GCC unroll 1")
#endif

// Marsaglia, "Xorshift RNGs" (2003), the 64-bit one with 13, 7, 17. Its state is never 0.
static __always_inline __u64 xorshift(__u64 state) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

#endif
