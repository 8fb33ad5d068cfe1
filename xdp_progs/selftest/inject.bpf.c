// SPDX-License-Identifier: Apache-2.0
// The events that `xdplab selftest` injects: it delays, drops, duplicates, exchanges and lengthens frames.
// Each event has a period in frames: n does it to every nth frame, 0 never.
#include <linux/bpf.h>
#include <linux/if_ether.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define NUMBER_AT 56 // where a test frame has its number: native/common/payload.h
#define MOST_TURNS (1 << 22)
#define LONGER_BY 8

const volatile __u64 delay_ns;
const volatile __u32 delay_every;
const volatile __u32 drop_every;
const volatile __u32 twice_every;
const volatile __u32 exchange_every; // exchange a frame and the next one
const volatile __u32 longer_every;

// Both entries are the device that the frame came from: a frame broadcast to them is sent there twice.
struct {
    __uint(type, BPF_MAP_TYPE_DEVMAP);
    __uint(max_entries, 2);
    __type(key, __u32);
    __type(value, __u32);
} selftest_twice SEC(".maps");

static long is_over(__u32 turn, __u64 *until) {
    (void)turn;
    return bpf_ktime_get_ns() >= *until;
}

static __always_inline void hold_back(void) {
    __u64 until = bpf_ktime_get_ns() + delay_ns;
    bpf_loop(MOST_TURNS, is_over, &until, 0);
}

static __always_inline int is_due(__u32 number, __u32 every) { return every && number % every == 0; }

SEC("xdp") int inject(struct xdp_md *ctx) {
    void *end = (void *)(long)ctx->data_end;
    struct ethhdr *ethernet = (void *)(long)ctx->data;
    __be32 *place = (void *)ethernet + NUMBER_AT;
    if ((void *)(place + 1) > end)
        return XDP_DROP;

    unsigned char other[ETH_ALEN];
    __builtin_memcpy(other, ethernet->h_dest, ETH_ALEN);
    __builtin_memcpy(ethernet->h_dest, ethernet->h_source, ETH_ALEN);
    __builtin_memcpy(ethernet->h_source, other, ETH_ALEN);

    __u32 number = bpf_ntohl(*place);
    if (is_due(number, delay_every))
        hold_back();
    if (is_due(number, drop_every))
        return XDP_DROP;
    // For the receiver, two frames that exchange their numbers are two frames in the other order.
    if (is_due(number, exchange_every))
        *place = bpf_htonl(number + 1);
    else if (is_due(number - 1, exchange_every))
        *place = bpf_htonl(number - 1);
    if (is_due(number, twice_every))
        return bpf_redirect_map(&selftest_twice, 0, BPF_F_BROADCAST);
    if (is_due(number, longer_every) && bpf_xdp_adjust_tail(ctx, LONGER_BY))
        return XDP_ABORTED;
    return XDP_TX;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
