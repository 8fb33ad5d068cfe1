// SPDX-License-Identifier: Apache-2.0
// The baseline: no access; MAC addresses swapped, frame sent back.
// The user-space twin: cc -O2 -fPIC -shared.
#include <linux/if_ether.h>
#include <linux/types.h>
#include <stddef.h>

#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#define COUNTER
#define SUBPROGRAM static __always_inline

/* ---- the workload: from here on the same text in the kernel and in user space ---- */

/* The compiler must have the value here, and forget what it knows of it. */
#define KEEP(value) __asm__ volatile("" : "+r"(value))

#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#define NO_UNROLL _Pragma("clang loop unroll(disable)")
#else
#define UNROLL _Pragma("GCC unroll 65534")
#define NO_UNROLL _Pragma("GCC unroll 1")
#endif

#ifdef XDPLAB_COUNT // a counting build: every access leaves a mark
volatile __u64 xdplab_count COUNTER;
#define COUNT_ACCESS() (xdplab_count++)
#else
#define COUNT_ACCESS()
#endif

static __always_inline void swap_macs(void *frame) {
    volatile __u16 *destination = frame, *source = destination + ETH_ALEN / 2;

    UNROLL
    for (int i = 0; i < ETH_ALEN / 2; i++) {
        __u16 half = destination[i];
        destination[i] = source[i];
        source[i] = half;
    }
}

struct workload_state; // there is none

static __always_inline __u64 workload(struct workload_state *state, void *data, void *data_end) { return 0; }

/* ---- what the AF_XDP application calls ---- */

const unsigned long xdplab_state_bytes = 0;

unsigned long xdplab_workload(void *state, unsigned char *data, unsigned int length) {
    unsigned long result = workload(state, data, data + length);
    swap_macs(data);
    return result;
}
