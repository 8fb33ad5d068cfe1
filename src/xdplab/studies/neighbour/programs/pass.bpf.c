// SPDX-License-Identifier: Apache-2.0
// The neighbour study's least programs: every frame goes on to the host, from XDP and from tcx.
#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_helpers.h>

SEC("xdp") int pass(struct xdp_md *ctx) { return XDP_PASS; }
SEC("tc") int pass_on(struct __sk_buff *skb) { return TC_ACT_UNSPEC; }

char LICENSE[] SEC("license") = "Dual BSD/GPL";
