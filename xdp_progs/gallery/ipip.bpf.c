// SPDX-License-Identifier: Apache-2.0
// Encapsulation: an IPv4 packet becomes the payload of another (IPIP, RFC 2003) to the tunnel's far end.
#include "gallery.h"

const volatile __u32 near_end = 0x0a020001; // 10.2.0.1
const volatile __u32 far_end = 0x0a020002;

ALWAYS void write_outer(struct iphdr *outer, __u16 inner_bytes) {
    *outer = (struct iphdr){.version = 4, .ihl = 5, .ttl = 64, .protocol = IPPROTO_IPIP};
    outer->tot_len = bpf_htons(inner_bytes + sizeof(*outer));
    outer->saddr = bpf_htonl(near_end);
    outer->daddr = bpf_htonl(far_end);
    __u16 *word = (__u16 *)outer;
    __u32 sum = 0;
#pragma unroll
    for (int i = 0; i < (int)sizeof(*outer) / 2; i++)
        sum += word[i];
    outer->check = folded(sum);
}

SEC("xdp") int encapsulate(struct xdp_md *ctx) {
    struct iphdr *ip = ipv4_of(ctx);
    if (!ip)
        return XDP_PASS;
    struct ethhdr ethernet = *(struct ethhdr *)(long)ctx->data;
    __u16 inner_bytes = bpf_ntohs(ip->tot_len);
    if (bpf_xdp_adjust_head(ctx, -(int)sizeof(*ip)))
        return XDP_DROP;
    struct ethhdr *first = (void *)(long)ctx->data;
    struct iphdr *outer = (void *)(first + 1);
    if ((void *)(outer + 1) > (void *)(long)ctx->data_end)
        return XDP_DROP;
    *first = ethernet;
    swap_macs(first);
    write_outer(outer, inner_bytes);
    return XDP_TX;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
