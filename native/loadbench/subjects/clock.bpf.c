// SPDX-License-Identifier: Apache-2.0
// One read of the clock: the simplest program of "eBPF against modules" (docs/use/loading.md).
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#define KEEP(value) __asm__ volatile("" : "+r"(value))

SEC("xdp")
int xdplab_clock(struct xdp_md *context) {
    __u64 now = bpf_ktime_get_ns();

    KEEP(now);
    return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
