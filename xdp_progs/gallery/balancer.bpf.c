// SPDX-License-Identifier: Apache-2.0
// A layer 4 load balancer: UDP to the service's address goes to a backend, the same one for all frames of a
// flow. A flow is looked up in an LRU table; a miss is decided by rendezvous hashing (the backend with the
// highest hash of flow and backend: if a backend is added or removed, only its flows move).
#include "gallery.h"

const volatile __u32 service = 0xc6130001; // 198.19.0.1
const volatile __u32 backends = 16;        // 10.1.0.1 and on
const volatile bool remember = true;       // false: hash every frame
#define FIRST_BACKEND 0x0a010001
#define MOST_BACKENDS 64

struct flow {
    __u32 from, to;
    __u16 from_port, to_port;
};

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 4096);
    __type(key, struct flow);
    __type(value, __u32); // the backend's number
} balancer_flows SEC(".maps");

// How many frames found their flow in the table, and how many were hashed.
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 2);
    __type(key, __u32);
    __type(value, __u64);
} balancer_cases SEC(".maps");

ALWAYS void count(__u32 kind) {
    __u64 *value = bpf_map_lookup_elem(&balancer_cases, &kind);
    if (value)
        ++*value;
}

// The finalizer of MurmurHash3, twice: each bit of flow and backend changes half of the result's bits.
ALWAYS __u32 mixed(__u32 hash) {
    hash ^= hash >> 16;
    hash *= 0x85ebca6b;
    hash ^= hash >> 13;
    hash *= 0xc2b2ae35;
    return hash ^ hash >> 16;
}

ALWAYS __u32 hashed(const struct flow *flow) {
    __u32 own = mixed(flow->from ^ mixed(flow->to ^ mixed((__u32)flow->from_port << 16 | flow->to_port)));
    __u32 best = 0, highest = 0;
    for (__u32 backend = 0; backend < MOST_BACKENDS; backend++) {
        if (backend >= backends)
            break;
        __u32 rank = mixed(own ^ mixed(backend + 1));
        if (rank >= highest) {
            highest = rank;
            best = backend;
        }
    }
    return best;
}

ALWAYS __u32 backend_of(const struct flow *flow) {
    __u32 *known = remember ? bpf_map_lookup_elem(&balancer_flows, flow) : NULL;
    count(!known);
    if (known)
        return *known;
    __u32 found = hashed(flow);
    if (remember)
        bpf_map_update_elem(&balancer_flows, flow, &found, BPF_ANY);
    return found;
}

// RFC 1624: the checksum of a header after one of its addresses has changed.
ALWAYS __u16 corrected(__u16 check, __u32 before, __u32 after) {
    __u32 sum = (__u16)~check;
    sum += (__u16) ~(before >> 16) + (__u16)~before + (after >> 16) + (after & 0xffff);
    return folded(sum);
}

SEC("xdp") int balance(struct xdp_md *ctx) {
    struct iphdr *ip = ipv4_of(ctx);
    struct udphdr *udp = ip ? udp_of(ctx, ip) : NULL;
    if (!udp || ip->daddr != bpf_htonl(service))
        return XDP_PASS;
    struct flow flow = {.from = ip->saddr, .to = ip->daddr, .from_port = udp->source, .to_port = udp->dest};
    __u32 backend = bpf_htonl(FIRST_BACKEND + backend_of(&flow));
    ip->check = corrected(ip->check, ip->daddr, backend);
    if (udp->check)
        udp->check = corrected(udp->check, ip->daddr, backend) ?: 0xffff;
    ip->daddr = backend;
    swap_macs((struct ethhdr *)ip - 1);
    return XDP_TX;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
