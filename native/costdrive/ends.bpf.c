// SPDX-License-Identifier: Apache-2.0
// The two ends of the sender's port: what writes each live frame, and what ends those that come back.
#include "shared.h"
#include <linux/bpf.h>
#include <stdbool.h>

#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile struct { __u32 frames; } settings SEC(".rodata");

__u32 number;

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct given_frame);
} frames SEC(".maps");

static __always_inline bool write_word(struct xdp_md *context, const struct given_frame *frame, __u32 word) {
    __u32 *to = (void *)(long)context->data + word * 4;

    if ((void *)(to + 1) > (void *)(long)context->data_end || word >= FRAME_WORDS)
        return false;
    *to = frame->words[word];
    return true;
}

static __always_inline void write_tail(struct xdp_md *context, const struct given_frame *frame) {
    __u64 whole = frame->bytes & ~3U;

    for (__u32 i = 0; i < 3; i++) {
        __u64 at = whole + i;

        if (at >= frame->bytes)
            break;
        asm volatile("%0 &= 0x7ff"
                     : "+r"(at)); // a bound that each clang leaves where the kernel looks for it
        char *to = (void *)(long)context->data + at;
        if (at >= MOST_FRAME_BYTES || (void *)(to + 1) > (void *)(long)context->data_end)
            break;
        *to = ((const char *)frame->words)[at];
    }
}

// A frame is written whole each time, because its page comes back as the program left it.
SEC("xdp") int send(struct xdp_md *context) {
    __u32 index = number;
    const struct given_frame *frame = bpf_map_lookup_elem(&frames, &index);

    number = index + 1 < settings.frames ? index + 1 : 0;
    if (!frame || frame->bytes > MOST_FRAME_BYTES)
        return XDP_ABORTED;
    long length = (long)context->data_end - (long)context->data, wanted = frame->bytes;
    asm volatile("" : "+r"(length)); // otherwise clang subtracts the end from a number, which no kernel takes
    if (wanted != length && bpf_xdp_adjust_tail(context, wanted - length))
        return XDP_ABORTED;
    for (__u32 word = 0; word < FRAME_WORDS; word++)
        if (!write_word(context, frame, word))
            break;
    write_tail(context, frame);
    return XDP_TX;
}

SEC("xdp") int sink(struct xdp_md *context) {
    (void)context;
    return XDP_DROP;
}
