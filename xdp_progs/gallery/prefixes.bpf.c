// SPDX-License-Identifier: Apache-2.0
// A filter by prefix: the longest prefix that matches a frame's source decides whether the frame is dropped;
// all other frames are reflected.
#include "gallery.h"

struct prefix {
    __u32 length;
    __u32 address;
};

// 1 drops; 0 lets a network through that is part of a dropped one.
struct {
    __uint(type, BPF_MAP_TYPE_LPM_TRIE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 100000);
    __type(key, struct prefix);
    __type(value, __u32);
} filter_prefixes SEC(".maps");

SEC("xdp") int filter(struct xdp_md *ctx) {
    struct iphdr *ip = ipv4_of(ctx);
    if (!ip)
        return XDP_PASS;
    struct prefix from = {.length = 32, .address = ip->saddr};
    __u32 *drops = bpf_map_lookup_elem(&filter_prefixes, &from);
    if (drops && *drops)
        return XDP_DROP;
    swap_macs((struct ethhdr *)ip - 1);
    return XDP_TX;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
