// SPDX-License-Identifier: Apache-2.0
// The neighbour study's least program: every frame goes on to the host.
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

SEC("xdp") int pass(struct xdp_md *ctx) { return XDP_PASS; }

char LICENSE[] SEC("license") = "Dual BSD/GPL";
