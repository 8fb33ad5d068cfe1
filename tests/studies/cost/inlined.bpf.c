// A function that is inlined at two places, for a test that counts each by hand.
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

static __always_inline __u32 mixed(__u32 number) {
    return number * 11 + 3; // inlined
}

SEC("xdp") int inlines(struct xdp_md *context) {
    unsigned char *data = (void *)(long)context->data;

    if (data + 34 > (unsigned char *)(long)context->data_end)
        return XDP_DROP;
    __u32 source = mixed(data[26]);      // source
    __u32 destination = mixed(data[30]); // destination
    asm volatile("" : "+r"(source), "+r"(destination));
    return source == destination ? XDP_DROP : XDP_TX;
}

char LICENSE[] SEC("license") = "GPL";
