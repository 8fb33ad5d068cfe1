// SPDX-License-Identifier: Apache-2.0
// The shortest DUT: three lines that send each frame back as it is.
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL";

SEC("xdp")
int three_lines(struct xdp_md *ctx) {
    (void)ctx;
    return XDP_TX;
}
