// SPDX-License-Identifier: Apache-2.0
/*
 * Counts the frames the device's driver took from XDP. The sending program cannot know: a full ring, or a
 * peer that cannot receive at all, is noticed only when its batch is flushed.
 */
#include "shared.h"
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The kernel's own structs, as far as needed; the loader finds the offsets (CO-RE). */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct ns_common {
    unsigned int inum;
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

const volatile struct accepted_settings settings SEC(".rodata");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64);
} accepted SEC(".maps");

SEC("tp_btf/xdp_devmap_xmit")
int BPF_PROG(count_accepted, const struct net_device *from, const struct net_device *to, int sent) {
    const __u32 zero = 0;

    if ((__u32)to->ifindex != settings.ifindex || to->nd_net.net->ns.inum != settings.netns)
        return 0;
    __u64 *count = bpf_map_lookup_elem(&accepted, &zero);
    if (count && sent > 0)
        *count += sent;
    return 0;
}
