// SPDX-License-Identifier: Apache-2.0
/*
 * Counts the live frames the device did not take. The sending program cannot
 * know: a full ring, or a peer that cannot receive at all, is noticed only when
 * its batch is flushed.
 */
#include "shared.h"
#include <linux/bpf.h>
#include <stdbool.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The kernel's own structs, as far as needed; the loader finds the offsets
 * (CO-RE). */
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

const volatile struct refused_settings settings SEC(".rodata");

struct refused_memory memory SEC(".bss");

static __always_inline bool is_ours(const struct net_device *device) {
    return (__u32)device->ifindex == settings.ifindex && device->nd_net.net->ns.inum == settings.netns;
}

/*
 * Runs once per flush, of any device on the machine: the usual case must cost next to nothing. For the same
 * reason xdp_redirect_err is left alone: it would burden a DUT whose AF_XDP rings overflow.
 */
SEC("tp_btf/xdp_devmap_xmit")
int BPF_PROG(count_refused, const struct net_device *from, const struct net_device *to, int sent, int drops) {
    if (drops <= 0 && memory.took_some)
        return 0;
    if (!is_ours(to))
        return 0;
    if (sent > 0)
        memory.took_some = 1;
    if (drops > 0)
        __sync_fetch_and_add(&memory.frames, drops);
    return 0;
}
