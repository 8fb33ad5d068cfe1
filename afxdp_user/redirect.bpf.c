// SPDX-License-Identifier: Apache-2.0
// Hands each frame to the socket of the queue it arrived on.
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "redirect.h"

struct {
    __uint(type, BPF_MAP_TYPE_XSKMAP);
    __uint(max_entries, MAX_QUEUES);
    __type(key, __u32);
    __type(value, __u32);
} sockets SEC(".maps");

__u64 unbound_packets = 0;

SEC("xdp")
int xdplab_redirect(struct xdp_md *ctx) {
    long verdict = bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_DROP);
    if (verdict != XDP_REDIRECT)
        __sync_fetch_and_add(&unbound_packets, 1);
    return verdict;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
