// SPDX-License-Identifier: Apache-2.0
// Forwarding: sends each frame to another device, whose index is in a device map.
#include "gallery.h"

struct {
    __uint(type, BPF_MAP_TYPE_DEVMAP);
    __uint(max_entries, 4);
    __type(key, __u32);
    __type(value, __u32);
} forward_ports SEC(".maps");

SEC("xdp") int forward(struct xdp_md *ctx) {
    struct ethhdr *ethernet = (void *)(long)ctx->data;
    if ((void *)(ethernet + 1) > (void *)(long)ctx->data_end)
        return XDP_DROP;
    swap_macs(ethernet);
    return bpf_redirect_map(&forward_ports, 0, XDP_ABORTED);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
