// SPDX-License-Identifier: Apache-2.0
// The empty program: swaps the MAC addresses and reflects. It is the baseline for the cost of the others.
#include "gallery.h"

SEC("xdp") int empty(struct xdp_md *ctx) {
    struct ethhdr *ethernet = (void *)(long)ctx->data;
    if ((void *)(ethernet + 1) > (void *)(long)ctx->data_end)
        return XDP_DROP;
    swap_macs(ethernet);
    return XDP_TX;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
