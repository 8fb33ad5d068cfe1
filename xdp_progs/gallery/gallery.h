// SPDX-License-Identifier: Apache-2.0
// Shared by the programs of the gallery: finds the headers of a frame.
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <stdbool.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ALWAYS static __always_inline

ALWAYS void swap_macs(struct ethhdr *ethernet) {
    unsigned char other[ETH_ALEN];
    __builtin_memcpy(other, ethernet->h_dest, ETH_ALEN);
    __builtin_memcpy(ethernet->h_dest, ethernet->h_source, ETH_ALEN);
    __builtin_memcpy(ethernet->h_source, other, ETH_ALEN);
}

// The IPv4 header without options, or NULL.
ALWAYS struct iphdr *ipv4_of(const struct xdp_md *ctx) {
    void *end = (void *)(long)ctx->data_end;
    struct ethhdr *ethernet = (void *)(long)ctx->data;
    struct iphdr *ip = (void *)(ethernet + 1);
    if ((void *)(ip + 1) > end || ethernet->h_proto != bpf_htons(ETH_P_IP) || ip->ihl != 5)
        return NULL;
    return ip;
}

// The UDP header behind the IPv4 header, or NULL.
ALWAYS struct udphdr *udp_of(const struct xdp_md *ctx, struct iphdr *ip) {
    struct udphdr *udp = (void *)(ip + 1);
    if ((void *)(udp + 1) > (void *)(long)ctx->data_end || ip->protocol != IPPROTO_UDP)
        return NULL;
    return udp;
}

// Folds a sum of 16-bit words into the checksum of IPv4 and UDP (RFC 1071).
ALWAYS __u16 folded(__u32 sum) {
    sum = (sum & 0xffff) + (sum >> 16);
    return ~(sum + (sum >> 16));
}
