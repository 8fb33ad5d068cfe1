// SPDX-License-Identifier: Apache-2.0
// The sender of live frames without bookkeeping, and the two simplest DUTs.
#include <linux/bpf.h>
#include <linux/if_ether.h>

#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("xdp/send")
int bare_send(struct xdp_md *ctx) { return XDP_TX; }

// As much as a stamped frame must: one read of the clock where it is made, one where it comes back.
SEC("xdp/send_clock")
int bare_send_clock(struct xdp_md *ctx) {
    bpf_ktime_get_ns();
    return XDP_TX;
}

SEC("xdp/drop_clock")
int bare_drop_clock(struct xdp_md *ctx) {
    bpf_ktime_get_ns();
    return XDP_DROP;
}

SEC("xdp/drop")
int bare_drop(struct xdp_md *ctx) { return XDP_DROP; }

SEC("xdp/reflect")
int bare_reflect(struct xdp_md *ctx) {
    struct ethhdr *eth = (void *)(long)ctx->data;
    unsigned char mac[ETH_ALEN];

    if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
        return XDP_ABORTED;
    __builtin_memcpy(mac, eth->h_dest, ETH_ALEN);
    __builtin_memcpy(eth->h_dest, eth->h_source, ETH_ALEN);
    __builtin_memcpy(eth->h_source, mac, ETH_ALEN);
    return XDP_TX;
}
