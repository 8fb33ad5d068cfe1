// Every way from one function to another, for a test that counts each by hand: a subprogram, a loop, a branch
// that is taken and one that is not, a helper, and a tail call.
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

struct {
    __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
} next_program SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64);
} sums SEC(".maps");

static __noinline __u64 subprogram(__u64 number) {
    return number * 7 + 3; // subprogram
}

SEC("xdp") int last(struct xdp_md *context) {
    return context->data_end > context->data ? XDP_TX : XDP_DROP; // tail
}

SEC("xdp") int parts(struct xdp_md *context) {
    __u32 key = 0;
    __u64 *sum = bpf_map_lookup_elem(&sums, &key);

    if (!sum)
        return XDP_DROP;
    __u64 number = *sum & 1;
#pragma clang loop unroll(disable)
    for (int i = 0; i < 10; i++)
        number += number * 3 + i; // loop
    *sum = subprogram(number);
    if (bpf_ktime_get_ns() == 0) // helper
        return XDP_DROP;
    bpf_tail_call(context, &next_program, 0);
    return XDP_ABORTED;
}

char LICENSE[] SEC("license") = "GPL";
