// SPDX-License-Identifier: Apache-2.0
// Makes each live frame into a test frame and sends it. Runs once per frame of a BPF_PROG_TEST_RUN call with
// BPF_F_TEST_XDP_LIVE_FRAMES; a frame that is not due is dropped, which is how it waits.
#include "payload.h"
#include "shared.h"
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <stdbool.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define FRAMES_BETWEEN_CHECKS 64

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile struct send_settings settings SEC(".rodata");
struct send_memory memory SEC(".bss");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct sender);
} senders SEC(".maps");

// Paced: how long after its due time each frame was made.
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct histogram);
} lateness SEC(".maps");

// How far churn was in each stream's last blocks: as many as there are, set before it is loaded. The
// receiver's own, where there is one.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct churned);
} churn SEC(".maps");

// The receiver, where frames are to reach it without a link.
struct {
    __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
    __uint(max_entries, 1);
    __uint(key_size, sizeof(__u32));
    __uint(value_size, sizeof(__u32));
} receiver SEC(".maps");

static __always_inline bool within_window(struct sender *sender, __u64 now) {
    const volatile struct send_window *window = &memory.window;

    if (!window->start_ns || now < window->start_ns)
        return false;
    if (now < window->end_ns && sender->sequence < sender->end_sequence)
        return true;
    if (!sender->stopped_ns)
        sender->stopped_ns = now < window->end_ns ? now : window->end_ns;
    return false;
}

// At max load one compare decides; the clock is read every 64 frames only.
static __always_inline bool may_send(struct sender *sender) {
    if (sender->sequence < sender->check_at)
        return true;
    __u64 now = bpf_ktime_get_ns();
    if (!within_window(sender, now))
        return false;
    __u64 check_at = sender->sequence + FRAMES_BETWEEN_CHECKS;
    sender->check_at = check_at < sender->end_sequence ? check_at : sender->end_sequence;
    look(&sender->looks, now);
    return true;
}

// Leaves the time it read in *now.
static __always_inline bool is_due(struct sender *sender, __u64 *now) {
    const __u32 zero = 0;

    *now = bpf_ktime_get_ns();
    if (!within_window(sender, *now))
        return false;
    __u64 elapsed = *now - memory.window.start_ns;
    if (sender->due > elapsed << SCHEDULE_SHIFT)
        return false;
    __u64 late = elapsed - (sender->due >> SCHEDULE_SHIFT);
    if (late > sender->latest_ns)
        sender->latest_ns = late;
    // those behind the first of a burst wait for it
    sender->late_packets += late > LATE_NS && (settings.burst == 1 || sender->burst_left == settings.burst);
    struct histogram *histogram = bpf_map_lookup_elem(&lateness, &zero);
    if (histogram)
        histogram_record_capped(histogram, late);
    if (settings.burst > 1) {
        if (--sender->burst_left)
            return true;
        sender->burst_left = settings.burst;
    }
    sender->due += sender->interval;
    return true;
}

// Once for each block of frames; the receiver reads it for each of them.
static __always_inline void look_at_churn(struct sender *sender, __u64 now) {
    const __u32 slot = churn_slot(sender->flow.stream, sender->sequence);

    now = now ?: bpf_ktime_get_ns();
    follow_churn(&sender->flow, settings.flows.churn_interval, now - memory.window.start_ns);
    struct churned *churned = bpf_map_lookup_elem(&churn, &slot);
    if (churned)
        *churned = sender->flow.churned;
}

static __always_inline struct frame_flow next_flow(struct sender *sender, __u64 now) {
    struct flow_cursor *cursor = &sender->flow;

    if (settings.flows.churn_interval && begins_block(cursor, sender->sequence))
        look_at_churn(sender, now);
    const __u32 rank =
        next_rank(cursor, &settings.flows, &memory.ranks[ranks_of_stream(&settings.flows, cursor->stream)],
                  sender->sequence);
    return flow_of_rank(cursor, &settings.flows, &settings.steps, rank);
}

// The largest one has this many words behind the head.
#define MOST_PAYLOAD_WORDS (ZEROS / 8)

static __always_inline bool was_changed(struct xdp_md *ctx, __u32 from) {
    void *end = (void *)(long)ctx->data_end;
    __u32 *first = (void *)(long)ctx->data + from;
    __u64 *word = (void *)(first + 1);
    __u64 found = 0;

    if ((void *)word > end)
        return false;
    found = *first;
    for (int i = 0; i < MOST_PAYLOAD_WORDS && (void *)(word + 1) <= end; i++)
        found |= *word++;
    __u8 *byte = (void *)word;
    for (int i = 0; i < 7 && (void *)(byte + 1) <= end; i++)
        found |= *byte++;
    return found;
}

// Pages come back as the DUT left them. The kernel writes pointers and length anew; number, stamp and headers
// are written on every frame; a payload is looked at now and then, and once one was changed, all are written.
static __always_inline bool make_whole(struct xdp_md *ctx, struct sender *sender, __u32 head_words,
                                       __u32 bytes) {
    const __u32 from = live_written(head_words);

    if (settings.sizes.largest <= from)
        return true;
    if (!memory.restores) {
        if (!drawn(&sender->looked_at, settings.look_every) || !was_changed(ctx, from))
            return true;
        memory.restores = 1;
    }
    if (sender->whole_from == ALL_ONES)
        sender->whole_from = sender->sequence;
    if (bytes <= from)
        return true;
    const __u32 rest = 1 + ((bytes - from - 1) & (ZEROS - 1)); // so that the verifier sees its bounds
    return !bpf_xdp_store_bytes(ctx, from, memory.zeros, rest);
}

static __always_inline void write_head(__u64 *words, __u32 head_words, struct frame_flow flow) {
    const volatile struct frame_head *head = &settings.head;

    for (int i = 0; i < PLAIN_FLOW_WORD; i++)
        words[i] = head->words[i];
    if (head_words == PLAIN_HEAD_WORDS) {
        frame_write_flow_words((void *)(words + PLAIN_FLOW_WORD), head->words, flow);
        return;
    }
    for (int i = PLAIN_FLOW_WORD; i <= PLAIN_HEAD_WORDS; i++)
        words[i] = head->words[i];
    if (head_words == MOST_HEAD_WORDS)
        for (int i = PLAIN_HEAD_WORDS + 1; i < MOST_HEAD_WORDS; i++)
            words[i] = head->words[i];
    frame_write_flow((void *)words, settings.layout.ip_version, settings.layout.ip_at, settings.layout.udp_at,
                     head_words, flow);
}

// Every live frame begins as the largest. Returns the size it gets, or 0 if the kernel refuses.
static __always_inline __u32 take_size(struct xdp_md *ctx, __u32 sizes, __u64 number) {
    const __u32 largest = settings.sizes.largest;
    const __u32 bytes = settings.sizes.bytes[frame_size_index(sizes, number)];

    return bytes == largest || !bpf_xdp_adjust_tail(ctx, (int)(bytes - largest)) ? bytes : 0;
}

static __always_inline void write_size(__u64 *words, __u32 bytes) {
    if (bytes != settings.sizes.largest)
        frame_change_size(words, settings.layout.ip_version, settings.layout.ip_at, settings.layout.udp_at,
                          settings.sizes.largest, bytes);
}

static __always_inline void write_sum(__u64 *words, __u64 stamp, __u32 sequence) {
    __u16 *sum = (void *)words + settings.layout.sum_at;

    *sum = frame_udp_sum(*sum, stamp, sequence, stamp != 0);
}

static __always_inline int send(struct xdp_md *ctx, __u32 head_words, __u32 sizes) {
    const __u32 zero = 0;
    __u64 now = 0, stamped = 0;

    struct sender *sender = bpf_map_lookup_elem(&senders, &zero);
    if (!sender)
        return XDP_ABORTED;
    sender->armed = 1;
    if (settings.paced ? !is_due(sender, &now) : !may_send(sender))
        return XDP_DROP;
    if (bpf_xdp_adjust_meta(ctx, LIVE_METADATA))
        return XDP_ABORTED;
    const __u32 bytes = sizes == 1 ? settings.sizes.largest : take_size(ctx, sizes, sender->sequence);
    if ((sizes > 1 && !bytes) || !make_whole(ctx, sender, head_words, bytes))
        return XDP_ABORTED;
    __u64 *words = (void *)(long)ctx->data;
    __u64 *stamp = words + head_words;
    __u32 *sequence = (__u32 *)(stamp + 1);
    const struct frame_flow flow = next_flow(sender, now);
    if ((void *)(sequence + 1) > (void *)(long)ctx->data_end)
        return XDP_ABORTED;

    write_head(words, head_words, flow);
    if (sizes > 1)
        write_size(words, bytes);
    *sequence = bpf_htonl((__u32)sender->sequence++);
    if (drawn(&sender->stamped, settings.stamp_every)) {
        stamp[-1] |= bpf_cpu_to_be64(PAYLOAD_STAMPED);
        stamped = now ?: bpf_ktime_get_ns();
    }
    *stamp = stamped;
    if (head_words != PLAIN_HEAD_WORDS && settings.layout.sum_at)
        write_sum(words, stamped, *sequence);
    if (settings.alone == ALONE_RECEIVER)
        bpf_tail_call(ctx, &receiver, 0);
    return settings.alone ? XDP_DROP : XDP_TX;
}

// A plain frame is neither written to nor counted.
static __always_inline int send_plain(void) {
    const __u32 zero = 0;

    if (memory.sending)
        return XDP_TX;
    struct sender *sender = bpf_map_lookup_elem(&senders, &zero);
    if (!sender)
        return XDP_ABORTED;
    sender->armed = 1;
    memory.sending = !sender->stopped_ns && within_window(sender, bpf_ktime_get_ns());
    return XDP_DROP;
}

// With the usual head and one size as constants; the verifier takes out the branch that is not asked for.
SEC("xdp")
int send_frame(struct xdp_md *ctx) {
    const __u32 head_words = settings.layout.head_words, sizes = settings.sizes.count;

    if (settings.plain)
        return send_plain();
    return head_words == PLAIN_HEAD_WORDS && sizes == 1 ? send(ctx, PLAIN_HEAD_WORDS, 1)
                                                        : send(ctx, head_words, sizes);
}
