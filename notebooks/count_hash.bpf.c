// SPDX-License-Identifier: Apache-2.0
// Counts packets by their sender in a hash map and sends them back. count_array.bpf.c has one counter.
#include <linux/bpf.h>
#include <linux/if_ether.h>

#include <bpf/bpf_helpers.h>

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_HASH);
    __uint(max_entries, 1024);
    __type(key, __u64);
    __type(value, __u64);
} packets SEC(".maps");

SEC("xdp")
int count(struct xdp_md *ctx) {
    void *end = (void *)(long)ctx->data_end;
    struct ethhdr *eth = (void *)(long)ctx->data;
    __u8 kept[ETH_ALEN];
    __u64 key = 0, first = 1, *counter;

    if ((void *)(eth + 1) > end)
        return XDP_PASS;
    __builtin_memcpy(&key, eth->h_source, ETH_ALEN);
    counter = bpf_map_lookup_elem(&packets, &key);
    if (counter)
        *counter += 1;
    else
        bpf_map_update_elem(&packets, &key, &first, BPF_ANY);
    __builtin_memcpy(kept, eth->h_source, ETH_ALEN);
    __builtin_memcpy(eth->h_source, eth->h_dest, ETH_ALEN);
    __builtin_memcpy(eth->h_dest, kept, ETH_ALEN);
    return XDP_TX;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
