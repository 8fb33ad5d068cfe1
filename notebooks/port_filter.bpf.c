// SPDX-License-Identifier: Apache-2.0
// A small program of the kind one wants measured: drops UDP to one port, sends everything else back.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

const volatile __u16 blocked_port = 9;

static __always_inline void swap_macs(struct ethhdr *eth) {
    __u8 kept[ETH_ALEN];

    __builtin_memcpy(kept, eth->h_source, ETH_ALEN);
    __builtin_memcpy(eth->h_source, eth->h_dest, ETH_ALEN);
    __builtin_memcpy(eth->h_dest, kept, ETH_ALEN);
}

SEC("xdp")
int port_filter(struct xdp_md *ctx) {
    void *end = (void *)(long)ctx->data_end;
    struct ethhdr *eth = (void *)(long)ctx->data;
    struct iphdr *ip = (void *)(eth + 1);
    struct udphdr *udp = (void *)(ip + 1);

    if ((void *)(udp + 1) > end || eth->h_proto != bpf_htons(ETH_P_IP) || ip->protocol != IPPROTO_UDP)
        return XDP_PASS;
    if (udp->dest == bpf_htons(blocked_port))
        return XDP_DROP;
    swap_macs(eth);
    return XDP_TX;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
