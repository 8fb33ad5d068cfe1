// SPDX-License-Identifier: Apache-2.0
// A filter of DNS queries: it walks the name label by label, and drops the query if the name is listed.
// Names are compared by the FNV-1a hash of their bytes, with the labels' lengths, in lower case; all other
// frames are reflected.
#include "gallery.h"

#define DNS_PORT 53
#define MOST_NAME 127
#define FNV_FIRST 0xcbf29ce484222325ULL
#define FNV_PRIME 0x100000001b3ULL
#define HEADER_BYTES 12
#define IS_ANSWER 0x80

// The hash of a name: 1.
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 65536);
    __type(key, __u64);
    __type(value, __u32);
} dns_names SEC(".maps");

struct walk {
    __u64 hash;
    __u32 left; // bytes of the label that are still to come
};

// The state of a walk. It is in a map, because the verifier would follow each value of a variable through all
// bytes of a name.
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct walk);
} dns_walks SEC(".maps");

// Takes one byte of the name: the length of a label, or a letter of it. False at the end: the root's length
// of 0, or a pointer, which a query does not need.
ALWAYS bool step(struct walk *walk, __u8 byte) {
    if (walk->left) {
        walk->left--;
        byte |= byte >= 'A' && byte <= 'Z' ? 0x20 : 0;
    } else {
        if (!byte || byte & 0xc0)
            return false;
        walk->left = byte;
    }
    walk->hash = (walk->hash ^ byte) * FNV_PRIME;
    return true;
}

ALWAYS bool name_hash(const __u8 *at, const void *end, __u64 *hash) {
    const __u32 zero = 0;
    struct walk *walk = bpf_map_lookup_elem(&dns_walks, &zero);
    if (!walk)
        return false;
    *walk = (struct walk){.hash = FNV_FIRST};
    for (int i = 0; i < MOST_NAME; i++) {
        if ((const void *)(at + 1) > end)
            return false;
        if (!step(walk, *at++)) {
            *hash = walk->hash;
            return true;
        }
    }
    return false;
}

SEC("xdp") int filter_dns(struct xdp_md *ctx) {
    void *end = (void *)(long)ctx->data_end;
    struct iphdr *ip = ipv4_of(ctx);
    struct udphdr *udp = ip ? udp_of(ctx, ip) : NULL;
    if (!udp || udp->dest != bpf_htons(DNS_PORT))
        return XDP_PASS;
    __u8 *message = (void *)(udp + 1);
    if ((void *)(message + HEADER_BYTES) > end || message[2] & IS_ANSWER)
        return XDP_PASS;
    __u64 hash;
    if (!name_hash(message + HEADER_BYTES, end, &hash))
        return XDP_DROP; // not a name, or a name that is longer than the limit
    if (bpf_map_lookup_elem(&dns_names, &hash))
        return XDP_DROP;
    swap_macs((struct ethhdr *)ip - 1);
    return XDP_TX;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
