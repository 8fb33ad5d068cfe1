// SPDX-License-Identifier: Apache-2.0
// The baseline: no access; MAC addresses swapped, frame sent back.
#include <linux/bpf.h>
#include <linux/if_ether.h>

#include <bpf/bpf_helpers.h>

#define COUNTER SEC(".data.xdplab_count")
#define SUBPROGRAM __noinline // verified once, by itself

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

/* ---- the XDP program around it ---- */

SEC("xdp")
int xdplab_baseline(struct xdp_md *ctx) {
    void *data = (void *)(long)ctx->data;
    void *data_end = (void *)(long)ctx->data_end;
    struct workload_state *state = 0;
    __u64 result;

    if (data + ETH_HLEN > data_end)
        return XDP_DROP;
    result = workload(state, data, data_end);
    KEEP(result);
    swap_macs(data);
    return XDP_TX;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
