// SPDX-License-Identifier: Apache-2.0
// A token bucket per source address: limits frames per second and the length of a burst; drops the rest.
#include "gallery.h"

const volatile __u64 rate_pps = 10000;
const volatile __u64 burst = 64;
#define SECOND_NS 1000000000ULL

struct bucket {
    struct bpf_spin_lock lock;
    __u64 credit_ns; // a frame costs 1 s / rate_pps
    __u64 last_ns;
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 65536);
    __type(key, __u32);
    __type(value, struct bucket);
} buckets SEC(".maps");

ALWAYS struct bucket *bucket_of(__u32 source, __u64 now, __u64 most_ns) {
    struct bucket *found = bpf_map_lookup_elem(&buckets, &source);
    if (found)
        return found;
    struct bucket full = {.credit_ns = most_ns, .last_ns = now};
    bpf_map_update_elem(&buckets, &source, &full, BPF_NOEXIST);
    return bpf_map_lookup_elem(&buckets, &source);
}

SEC("xdp") int police(struct xdp_md *ctx) {
    struct iphdr *ip = ipv4_of(ctx);
    if (!ip || !rate_pps)
        return XDP_PASS;
    __u64 now = bpf_ktime_get_ns(), price_ns = SECOND_NS / rate_pps, most_ns = burst * price_ns;
    struct bucket *bucket = bucket_of(ip->saddr, now, most_ns);
    if (!bucket)
        return XDP_DROP;
    bpf_spin_lock(&bucket->lock);
    __u64 credit_ns = bucket->credit_ns + (now > bucket->last_ns ? now - bucket->last_ns : 0);
    credit_ns = credit_ns < most_ns ? credit_ns : most_ns;
    bool allowed = credit_ns >= price_ns;
    bucket->credit_ns = allowed ? credit_ns - price_ns : credit_ns;
    bucket->last_ns = now;
    bpf_spin_unlock(&bucket->lock);
    if (!allowed)
        return XDP_DROP;
    swap_macs((struct ethhdr *)ip - 1);
    return XDP_TX;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
