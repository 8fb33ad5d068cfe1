// SPDX-License-Identifier: Apache-2.0
// Counts the live frames that the device took: the others were refused. The sending program cannot know: a
// full ring is noticed only when its batch is flushed, and a peer that receives no more, or a frame beyond
// the MTU, keeps a frame out of the batch.
#include "shared.h"
#include <linux/bpf.h>
#include <stdbool.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

// The kernel's own structs, as far as needed; the loader finds the offsets (CO-RE).
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct ns_common {
    unsigned inum;
};
struct net {
    struct ns_common ns;
};
typedef struct {
    struct net *net;
} possible_net_t;
struct net_device {
    int ifindex;
    possible_net_t nd_net;
};
#pragma clang attribute pop

const volatile struct refused_settings settings SEC(".rodata");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64);
} taken SEC(".maps");

static __always_inline bool is_ours(const struct net_device *device) {
    return (__u32)device->ifindex == settings.ifindex && device->nd_net.net->ns.inum == settings.netns;
}

// Runs once per flush, of any device on the machine: it must cost next to nothing.
SEC("tp_btf/xdp_devmap_xmit")
int BPF_PROG(count_taken, const struct net_device *from, const struct net_device *to, int sent, int drops) {
    const __u32 zero = 0;

    if (sent <= 0 || !is_ours(to))
        return 0;
    __u64 *frames = bpf_map_lookup_elem(&taken, &zero);
    if (frames)
        *frames += sent;
    return 0;
}
