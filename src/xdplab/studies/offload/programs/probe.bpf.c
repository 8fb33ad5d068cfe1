// SPDX-License-Identifier: Apache-2.0
// The offload study's programs: what is asked of a device is defined before this text.
#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_helpers.h>

#ifdef MAP_TYPE
struct {
    __uint(type, MAP_TYPE);
    __uint(max_entries, MAP_ENTRIES);
    __uint(map_flags, MAP_FLAGS);
    __uint(key_size, KEY_BYTES);
    __uint(value_size, VALUE_BYTES);
} asked SEC(".maps");
#endif

#ifdef CONSTANT
const volatile __u32 verdict = XDP_PASS;
#elif defined(VARIABLE)
__u32 verdict = XDP_PASS;
#else
#define verdict XDP_PASS
#endif

static __always_inline int work(struct xdp_md *ctx) {
#ifdef LOOKUP
    __u32 key = 0;
    __u64 *value = bpf_map_lookup_elem(&asked, &key);
    if (value)
        ++*value;
#elif defined(OUTPUT)
    __u32 word = 0;
    bpf_perf_event_output(ctx, &asked, 0, &word, sizeof(word));
#elif defined(INSTRUCTIONS)
    asm volatile("r0 = 0; .rept %[n]; r0 += 1; .endr" ::[n] "i"(INSTRUCTIONS) : "r0");
#elif defined(UNCHECKED)
    return *(__u8 *)(long)ctx->data;
#endif
    return verdict;
}

SEC("xdp") int probe(struct xdp_md *ctx) { return work(ctx); }

#ifdef SECOND
SEC("xdp/second") int second(struct xdp_md *ctx) { return work(ctx); }
#endif

#ifdef FILTER
SEC("tc") int filter(struct __sk_buff *skb) { return TC_ACT_OK; }
#endif

char LICENSE[] SEC("license") = "Dual BSD/GPL";
