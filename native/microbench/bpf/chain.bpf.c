// SPDX-License-Identifier: Apache-2.0
// The chain as BPF programs: `microbench` reads the clock and calls the first link; a link calls itself
// through the map, as it would call any other, until none is left; the last one reads the clock.
#include "world.h"

#include "../kernels/chain.h"

struct working_set chain;

struct {
    __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
} links SEC(".maps");

SEC("xdp")
int chain_link(struct xdp_md *ctx) {
    if (work(&chain)) {
        bpf_tail_call(ctx, &links, 0);
        return XDP_ABORTED; // no further: the kernel's limit
    }
    record.result = chain.value;
    record.end = CLOCK();
    return XDP_PASS;
}

SEC("xdp")
int microbench(struct xdp_md *ctx) {
    __u64 input = record.input;

    record.begin = CLOCK();
    begin_chain(&chain, input);
    bpf_tail_call(ctx, &links, 0);
    return XDP_ABORTED;
}
