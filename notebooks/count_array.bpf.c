// SPDX-License-Identifier: Apache-2.0
// Counts packets in an array and sends them back. count_hash.bpf.c does the same with a hash map.
#include <linux/bpf.h>
#include <linux/if_ether.h>

#include <bpf/bpf_helpers.h>

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64);
} packets SEC(".maps");

SEC("xdp")
int count(struct xdp_md *ctx) {
    void *end = (void *)(long)ctx->data_end;
    struct ethhdr *eth = (void *)(long)ctx->data;
    __u8 kept[ETH_ALEN];
    __u32 key = 0;
    __u64 *counter = bpf_map_lookup_elem(&packets, &key);

    if ((void *)(eth + 1) > end || !counter)
        return XDP_PASS;
    *counter += 1;
    __builtin_memcpy(kept, eth->h_source, ETH_ALEN);
    __builtin_memcpy(eth->h_source, eth->h_dest, ETH_ALEN);
    __builtin_memcpy(eth->h_dest, kept, ETH_ALEN);
    return XDP_TX;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
