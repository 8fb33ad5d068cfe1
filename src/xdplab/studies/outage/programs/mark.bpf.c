// SPDX-License-Identifier: Apache-2.0
// Writes its number into the last byte of a frame's source MAC, which is 0 as it is sent, and lets the frame
// pass: so the listener sees of each frame which program, or none, has had it.
#include <linux/bpf.h>
#include <linux/if_ether.h>

#include <bpf/bpf_helpers.h>

#ifndef NUMBER // the study builds one with 1 and one with 2
#define NUMBER 1
#endif
#define LAST_OF_SOURCE (2 * ETH_ALEN - 1)

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("xdp")
int mark(struct xdp_md *ctx) {
    unsigned char *frame = (void *)(long)ctx->data;

    if (frame + ETH_HLEN <= (unsigned char *)(long)ctx->data_end)
        frame[LAST_OF_SOURCE] = NUMBER;
    return XDP_PASS;
}
