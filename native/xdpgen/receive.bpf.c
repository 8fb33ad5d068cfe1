// SPDX-License-Identifier: Apache-2.0
/*
 * Takes every test frame off the TG's device: counts it, looks at its sequence
 * number, and puts its age into a histogram. What is not a test frame goes on
 * to the stack.
 *
 * Several CPUs may receive one stream. Its record is then shared without locks:
 * a race can miss an event, it cannot invent one.
 */
#include "payload.h"
#include "shared.h"
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <stdbool.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile struct receive_settings settings SEC(".rodata");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct receive_counters);
} counters SEC(".maps");

struct receive_memory memory SEC(".bss");

/* Paced: from the time each stamped frame was due. */
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct histogram);
} from_due SEC(".maps");

static __always_inline __u32 stream_of(__u32 flow) {
    return (settings.streams == 1 ? 0 : flow % settings.streams) & (MAX_STREAMS - 1);
}

/* The number of which a frame carries the low half: the one next to the highest seen. */
static __always_inline __u64 whole_number(const struct receive_stream *stream, __u32 low) {
    return stream->next + (__s32)(low - (__u32)stream->next);
}

/* Returns false for a frame of an earlier burst. */
static __always_inline bool record_sequence(struct receive_counters *counts, __u32 flow, __u64 number) {
    struct receive_stream *stream = &memory.streams[stream_of(flow)];

    if ((__s64)(number - stream->first) < 0)
        return false;
    __u32 *seen = &stream->seen[number & (SEEN_SLOTS - 1)];
    if (*seen == (__u32)number) {
        counts->duplicates++;
        return true;
    }
    *seen = number;
    if (number >= stream->next)
        stream->next = number + 1;
    __u64 *next = &memory.flow_next[flow & PAYLOAD_FLOW_MASK];
    if (number >= *next)
        *next = number + 1;
    else
        counts->reordered++;
    return true;
}

static __always_inline void record_from_due(__u32 flow, __u64 number, __u64 now) {
    const struct receive_schedule *schedule = &memory.schedule;
    const __u32 zero = 0, index = stream_of(flow);

    if (!schedule->interval)
        return;
    struct histogram *histogram = bpf_map_lookup_elem(&from_due, &zero);
    if (!histogram)
        return;
    __u64 frames = number - memory.streams[index].first;
    __u64 due = (index * schedule->stagger + frames * schedule->interval) >> SCHEDULE_SHIFT;
    histogram_record_capped(histogram, now - schedule->start_ns - due);
}

static __always_inline void record_times(struct receive_counters *counts, __u32 flow, __u64 number,
                                         __u64 stamp) {
    __u64 now = bpf_ktime_get_ns();

    if (histogram_record(&counts->latency, now - stamp))
        record_from_due(flow, number, now);
    else
        counts->bad_stamps++;
}

static __always_inline bool goes_to_test_port(void *data, void *data_end) {
    struct ethhdr *eth = data;
    struct iphdr *ip = (void *)(eth + 1);
    struct udphdr *udp = (void *)(ip + 1);

    return (void *)(udp + 1) <= data_end && eth->h_proto == bpf_htons(ETH_P_IP) &&
           ip->protocol == IPPROTO_UDP && udp->dest == bpf_htons(settings.udp_port);
}

static __always_inline int take_other(struct receive_counters *counts, void *data, void *data_end,
                                      __u32 magic) {
    bool ours = goes_to_test_port(data, data_end);

    if (ours && !((magic ^ PAYLOAD_MAGIC) & ~PAYLOAD_RUN_ID_MASK)) {
        counts->bad_run_id++;
        return XDP_DROP;
    }
    counts->foreign++;
    counts->damaged += ours;
    return ours ? XDP_DROP : XDP_PASS;
}

static __always_inline int refuse_altered(struct receive_counters *counts) {
    counts->foreign++;
    counts->altered++;
    return XDP_DROP;
}

SEC("xdp")
int receive_frame(struct xdp_md *ctx) {
    void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
    __u64 *words = data;
    __u32 *sequence = (__u32 *)(words + FRAME_SEQUENCE_WORD);
    const __u32 zero = 0;

    struct receive_counters *counts = bpf_map_lookup_elem(&counters, &zero);
    if (!counts)
        return XDP_ABORTED;
    if ((void *)(sequence + 1) > data_end)
        return take_other(counts, data, data_end, 0);
    __u64 word = bpf_be64_to_cpu(words[FRAME_HEAD_WORDS - 1]);
    __u32 magic = word >> 16, flow = word & PAYLOAD_FLOW_MASK;
    if (magic != settings.magic)
        return take_other(counts, data, data_end, magic);
    if (data_end - data != settings.frame_bytes || !frame_has_shape(words, settings.frame_bytes))
        return refuse_altered(counts);
    __u64 number = whole_number(&memory.streams[stream_of(flow)], bpf_ntohl(*sequence));
    if (!record_sequence(counts, flow, number)) {
        counts->stale++;
        return XDP_DROP;
    }
    counts->by_queue[ctx->rx_queue_index & (MAX_QUEUES - 1)]++;
    if (word & PAYLOAD_STAMPED)
        record_times(counts, flow, number, words[FRAME_STAMP_WORD]);
    return XDP_DROP;
}
