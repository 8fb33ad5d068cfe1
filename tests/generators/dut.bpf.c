// SPDX-License-Identifier: Apache-2.0
// What a DUT may do with a frame: one program a section.
#include <linux/bpf.h>
#include <linux/if_ether.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define PAYLOAD_START 42
#define PAYLOAD_END 60

char LICENSE[] SEC("license") = "Dual BSD/GPL";

static __always_inline int swap_macs(struct xdp_md *ctx) {
    struct ethhdr *eth = (void *)(long)ctx->data;
    unsigned char mac[ETH_ALEN];

    if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
        return XDP_ABORTED;
    __builtin_memcpy(mac, eth->h_dest, ETH_ALEN);
    __builtin_memcpy(eth->h_dest, eth->h_source, ETH_ALEN);
    __builtin_memcpy(eth->h_source, mac, ETH_ALEN);
    return XDP_TX;
}

static __always_inline int overwrite(struct xdp_md *ctx, int from, int to) {
    unsigned char *frame = (void *)(long)ctx->data;

    if (frame + PAYLOAD_END > (unsigned char *)(long)ctx->data_end)
        return XDP_ABORTED;
    for (int i = from; i < to; i++)
        frame[i] = 0xa5;
    return XDP_TX;
}

static unsigned seen;

SEC("xdp/reflect")
int reflect(struct xdp_md *ctx) { return swap_macs(ctx); }

// Destroys what the sender wrote: nothing of it may be left in the next frame of the same page.
SEC("xdp/overwrite_all")
int overwrite_all(struct xdp_md *ctx) { return overwrite(ctx, PAYLOAD_START, PAYLOAD_END) & swap_macs(ctx); }

// Destroys one frame in two, so that the other must come back whole from a page that held a destroyed one.
SEC("xdp/overwrite_half")
int overwrite_half(struct xdp_md *ctx) {
    if (__sync_fetch_and_add(&seen, 1) & 1)
        overwrite(ctx, 0, PAYLOAD_END);
    return swap_macs(ctx);
}

// Forwards between the two ports with these numbers, by a map of devices; drops one in ten of what the second
// one received.
#define FIRST_PORT 101
#define SECOND_PORT 102

struct {
    __uint(type, BPF_MAP_TYPE_DEVMAP);
    __uint(max_entries, SECOND_PORT + 1);
    __type(key, __u32);
    __type(value, __u32);
} ports SEC(".maps");

SEC("xdp/cross")
int cross(struct xdp_md *ctx) {
    if (ctx->ingress_ifindex == SECOND_PORT && __sync_fetch_and_add(&seen, 1) % 10 == 0)
        return XDP_DROP;
    return bpf_redirect_map(&ports, ctx->ingress_ifindex, XDP_ABORTED);
}

// How often a frame came with each length, so many bytes of metadata, a signature, or a stamp in each flow.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 4096);
    __type(key, __u32);
    __type(value, __u64);
} came SEC(".maps");

static __always_inline void count(__u32 what) {
    __u64 *times = bpf_map_lookup_elem(&came, &what);

    if (times)
        __sync_fetch_and_add(times, 1);
}

static __always_inline int change_length(struct xdp_md *ctx, int by) {
    count(ctx->data_end - ctx->data);
    return bpf_xdp_adjust_tail(ctx, by) ? XDP_ABORTED : swap_macs(ctx);
}

SEC("xdp/grow")
int grow(struct xdp_md *ctx) { return change_length(ctx, 48); }

SEC("xdp/shrink")
int shrink(struct xdp_md *ctx) { return change_length(ctx, -4); }

SEC("xdp/mark")
int mark(struct xdp_md *ctx) {
    count(ctx->data - ctx->data_meta);
    return bpf_xdp_adjust_meta(ctx, -8) ? XDP_ABORTED : swap_macs(ctx);
}

// Signs a frame behind its headers.
SEC("xdp/sign")
int sign(struct xdp_md *ctx) {
    unsigned char *data = (void *)(long)ctx->data;

    if (data + 204 > (unsigned char *)(long)ctx->data_end)
        return XDP_ABORTED;
    count(data[200] == 0xa5);
    data[200] = 0xa5;
    return XDP_DROP;
}

#define STAMPED 0x8000

static __always_inline int count_stamped(struct xdp_md *ctx, int by_size) {
    unsigned char *data = (void *)(long)ctx->data;

    if (data + PAYLOAD_END > (unsigned char *)(long)ctx->data_end)
        return XDP_ABORTED;
    const unsigned flow = bpf_ntohs(*(__u16 *)(data + 46)), number = bpf_ntohl(*(__u32 *)(data + 56));
    if (flow & STAMPED)
        count(by_size ? number % 12 : flow & 4095);
    return XDP_DROP;
}

SEC("xdp/stamped_by_flow")
int stamped_by_flow(struct xdp_md *ctx) { return count_stamped(ctx, 0); }

SEC("xdp/stamped_by_place")
int stamped_by_place(struct xdp_md *ctx) { return count_stamped(ctx, 1); }

// Which destinations came; their last 17 bits are the flow's.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1 << 17);
    __type(key, __u32);
    __type(value, __u64);
} came_to SEC(".maps");

SEC("xdp/flows")
int flows(struct xdp_md *ctx) {
    __u16 *data = (void *)(long)ctx->data;

    if (data + PAYLOAD_END / 2 > (__u16 *)(long)ctx->data_end)
        return XDP_ABORTED;
    __u32 to = (bpf_ntohs(data[15]) & 1) << 16 | bpf_ntohs(data[16]);
    __u64 *times = bpf_map_lookup_elem(&came_to, &to);
    if (times)
        __sync_fetch_and_add(times, 1);
    return swap_macs(ctx);
}

SEC("xdp.frags")
int reflect_buffers(struct xdp_md *ctx) { return swap_macs(ctx); }

// Destroys one byte, the last but one of a frame's last buffer.
SEC("xdp.frags")
int spoil_last(struct xdp_md *ctx) {
    unsigned char byte = 0xa5;

    if (bpf_xdp_store_bytes(ctx, bpf_xdp_get_buff_len(ctx) - 2, &byte, 1))
        return XDP_ABORTED;
    return swap_macs(ctx);
}

SEC("xdp/drop")
int drop(struct xdp_md *ctx) { return XDP_DROP; }

SEC("xdp/drop_tenth")
int drop_tenth(struct xdp_md *ctx) { return __sync_fetch_and_add(&seen, 1) % 10 ? swap_macs(ctx) : XDP_DROP; }
