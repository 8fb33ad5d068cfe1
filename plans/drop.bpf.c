// SPDX-License-Identifier: Apache-2.0
// Drops each frame: what a packet costs on its way to the DUT, without the way back.
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

SEC("xdp")
int drop(struct xdp_md *ctx) { return XDP_DROP; }

char LICENSE[] SEC("license") = "Dual BSD/GPL";
