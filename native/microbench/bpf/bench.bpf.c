// SPDX-License-Identifier: Apache-2.0
// A benchmark as a BPF program: clang -DKERNEL='"kernels/NAME.h"'. XDP, since every kernel from 5.10 on can
// run it by BPF_PROG_TEST_RUN, and its packet is the workload's.
#include "world.h"

#include KERNEL

#include "../kernels/measure.h"

#ifndef FIND_WORKING_SET
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct working_set);
} memory SEC(".maps"); // not `working_set`: that name may be a macro

static __always_inline struct working_set *find_working_set(void) {
    __u32 key = 0;

    return bpf_map_lookup_elem(&memory, &key);
}
#define FIND_WORKING_SET() find_working_set()
#endif

SEC("xdp")
int microbench(struct xdp_md *ctx) {
    void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
    struct working_set *set = FIND_WORKING_SET();

    if (!set || data + ETH_HLEN > data_end)
        return XDP_ABORTED;
    measure((struct bench_record *)&record, set, data, data_end);
    return XDP_PASS;
}
