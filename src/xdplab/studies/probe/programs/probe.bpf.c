// SPDX-License-Identifier: Apache-2.0
// Does one thing to the test frames of a burst, and counts them by the queue they came in. Others pass.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define QUEUES 64
#define MAGIC_AT 42 // native/common/payload.h

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile __u32 action = XDP_PASS;
const volatile __u32 magic = 0;

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64[QUEUES]);
} queues SEC(".maps");

static void count(__u32 queue) {
    const __u32 zero = 0;
    __u64 *counts = bpf_map_lookup_elem(&queues, &zero);

    if (counts && queue < QUEUES)
        __sync_fetch_and_add(&counts[queue], 1);
}

static int decide(struct xdp_md *ctx) {
    unsigned char *frame = (void *)(long)ctx->data, mac;

    if (frame + MAGIC_AT + sizeof(__u32) > (unsigned char *)(long)ctx->data_end)
        return XDP_PASS;
    if (*(__u32 *)(frame + MAGIC_AT) != bpf_htonl(magic))
        return XDP_PASS;
    count(ctx->rx_queue_index);
    if (action == XDP_TX || action == XDP_REDIRECT)
        for (int i = 0; i < ETH_ALEN; i++) {
            mac = frame[i];
            frame[i] = frame[i + ETH_ALEN];
            frame[i + ETH_ALEN] = mac;
        }
    return action == XDP_REDIRECT ? bpf_redirect(ctx->ingress_ifindex, 0) : action;
}

SEC("xdp")
int probe(struct xdp_md *ctx) { return decide(ctx); }

SEC("xdp.frags")
int probe_frags(struct xdp_md *ctx) { return decide(ctx); }

SEC("tc")
int probe_tc(struct __sk_buff *skb) { return TC_ACT_UNSPEC; }
