// SPDX-License-Identifier: Apache-2.0
// Takes every test frame off the TG's device: counts it, looks at its sequence number, and puts its age into
// a histogram. What is not a test frame goes on to the stack.
//
// Several CPUs may receive one stream. Its record is then shared without locks: a race can miss an event, it
// cannot invent one.
#include "payload.h"
#include "shared.h"
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <stdbool.h>
#include <stddef.h>

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

// Where frames have several sizes; duplicates included.
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct size_counts);
} by_size SEC(".maps");

struct receive_memory memory SEC(".bss");

// Paced: from the time each stamped frame was due.
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct histogram);
} from_due SEC(".maps");

// How far churn was in each stream's last blocks, as the sender writes it: as many as there are, set before
// it is loaded.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct churned);
} churn SEC(".maps");

static __always_inline __u32 stream_of(__u32 flow) {
    return (settings.flows.streams == 1 ? 0 : flow % settings.flows.streams) & (MAX_STREAMS - 1);
}

// The number of which a frame carries the low half: the one next to the highest seen.
static __always_inline __u64 whole_number(const struct receive_stream *stream, __u32 low) {
    return stream->next + (__s32)(low - (__u32)stream->next);
}

static __always_inline __u32 rank_of(__u32 stream, __u64 number) {
    const __u64 index = number - memory.streams[stream].first;

    if (settings.flows.drawn)
        return draw_rank(&memory.ranks[ranks_of_stream(&settings.flows, stream)], settings.flows.seed, stream,
                         index);
    return index % flows_of_stream(&settings.flows, stream);
}

struct place {
    __u32 flow;
    __u32 generation; // how often a flow in this place was replaced before
    bool recent;      // false: too long ago to know
};

static __always_inline struct place place_of(struct receive_counters *counts, __u32 label, __u64 number) {
    const __u32 stream = stream_of(label);
    struct place place = {.flow = label, .recent = true};

    if (!settings.flows.by_number)
        return place;
    const __u32 rank = rank_of(stream, number), slot = churn_slot(stream, number);
    place.flow = stream + settings.flows.streams * rank;
    counts->by_octave[at_most(log2_of_random(rank + 1), RANK_OCTAVES - 1)]++;
    if (!settings.flows.churn_interval)
        return place;
    const struct churned *churned = bpf_map_lookup_elem(&churn, &slot);
    const __u64 behind = memory.streams[stream].next - number;
    place.recent = churned && (__s64)behind < CHURN_FRAMES * (CHURN_BLOCKS - 1);
    if (churned)
        place.generation = flow_generation(*churned, rank);
    return place;
}

// Frames of a flow that was replaced are no later and no earlier than those of its successor. A frame that is
// in order within its stream is so within its flow, which then need not be read: of many it is not in a
// cache.
static __always_inline void record_flow(struct receive_counters *counts, struct place place, __u64 number,
                                        bool in_order) {
    __u64 *next = &memory.flow_next[place.flow & (MAX_FLOWS - 1)];
    struct replaced_flow *flow = &memory.replaced[place.flow & (MAX_FLOWS - 1)];
    const __u32 generation = place.generation + 1;

    if (!settings.flows.churn_interval) {
        if (in_order || number >= *next)
            *next = number + 1;
        else
            counts->reordered++;
        return;
    }
    if (!place.recent || generation < flow->generation)
        return;
    if (generation > flow->generation) {
        flow->generation = generation;
        flow->seen++;
        *next = number + 1;
    } else if (number >= *next)
        *next = number + 1;
    else
        counts->reordered++;
}

// Returns false for a frame of an earlier burst.
static __always_inline bool record_sequence(struct receive_counters *counts, __u32 label, __u64 number) {
    struct receive_stream *stream = &memory.streams[stream_of(label)];

    if ((__s64)(number - stream->first) < 0)
        return false;
    __u32 *seen = &stream->seen[number & (SEEN_SLOTS - 1)];
    if (*seen == (__u32)number) {
        counts->duplicates++;
        return true;
    }
    *seen = number;
    const bool in_order = number >= stream->next;
    if (in_order)
        stream->next = number + 1;
    record_flow(counts, place_of(counts, label, number), number, in_order);
    return true;
}

static __always_inline void record_from_due(__u32 label, __u64 number, __u64 now) {
    const struct receive_schedule *schedule = &memory.schedule;
    const __u32 zero = 0, index = stream_of(label);

    if (!schedule->interval)
        return;
    struct histogram *histogram = bpf_map_lookup_elem(&from_due, &zero);
    if (!histogram)
        return;
    __u64 bursts = (number - memory.streams[index].first) / settings.burst;
    __u64 due = (index * schedule->stagger + bursts * schedule->interval) >> SCHEDULE_SHIFT;
    histogram_record_capped(histogram, now - schedule->start_ns - due);
}

#ifdef DEVICE_STAMPS
extern int bpf_xdp_metadata_rx_timestamp(const struct xdp_md *ctx, __u64 *timestamp) __ksym;

// As many as the streams have slots: set before it is loaded.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct arrival);
} arrivals SEC(".maps");

// By the device's clock; 0 where it does not tell.
static __always_inline __u64 device_stamp(struct xdp_md *ctx) {
    __u64 stamp = 0;
    int error = bpf_xdp_metadata_rx_timestamp(ctx, &stamp);

    if (!error && stamp)
        return stamp;
    memory.clock.error = -error;
    return 0;
}

// When the frame came, by the device; 0 where it does not tell.
static __always_inline __u64 receipt(struct xdp_md *ctx) {
    __u64 stamp = device_stamp(ctx);

    return stamp && memory.clock.known ? stamp + memory.clock.to_monotonic : 0;
}

// Of a duplicate, the first one stays.
static __always_inline void keep_arrival(struct receive_counters *counts, __u32 label, __u64 number,
                                         __u64 stamp) {
    const __u32 slot = stream_of(label) * ARRIVAL_SLOTS + (number & (ARRIVAL_SLOTS - 1));

    struct arrival *arrival = bpf_map_lookup_elem(&arrivals, &slot);
    if (!arrival || (arrival->ns && arrival->number == number))
        return;
    arrival->number = number;
    arrival->ns = stamp;
    counts->arrived++;
}

// To be compared in user space, when the device has told when it sent the frame.
static __always_inline void record_arrival(struct xdp_md *ctx, struct receive_counters *counts, __u32 label,
                                           __u64 number) {
    __u64 stamp = device_stamp(ctx);

    if (stamp)
        keep_arrival(counts, label, number, stamp);
    else
        counts->unstamped++;
}
#else
static __always_inline void record_arrival(struct xdp_md *ctx, struct receive_counters *counts, __u32 label,
                                           __u64 number) {}

static __always_inline __u64 receipt(struct xdp_md *ctx) { return bpf_ktime_get_ns(); }
#endif

static __always_inline void record_times(struct xdp_md *ctx, struct receive_counters *counts, __u32 label,
                                         __u64 number, __u64 stamp) {
    __u64 now = receipt(ctx);

    if (!now)
        counts->unstamped++;
    else if (histogram_record(&counts->latency, now - stamp))
        record_from_due(label, number, now);
    else
        counts->bad_stamps++;
}

static __always_inline bool goes_to_test_port(void *data, void *data_end) {
    const bool ipv6 = settings.layout.ip_version == 6;
    __u16 *type = data + settings.layout.ip_at - sizeof(*type);
    __u8 *protocol = data + settings.layout.ip_at +
                     (ipv6 ? offsetof(struct ipv6hdr, nexthdr) : offsetof(struct iphdr, protocol));
    struct udphdr *udp = data + settings.layout.udp_at;

    return (void *)(udp + 1) <= data_end && *type == bpf_htons(ipv6 ? ETH_P_IPV6 : ETH_P_IP) &&
           *protocol == IPPROTO_UDP && udp->dest == bpf_htons(settings.udp_port);
}

#define MOST_WORDS (ETH_FRAME_LEN / 8)

#define COPIED_WORDS 16
#define MOST_COPIES (MOST_FRAME_BYTES / (8 * COPIED_WORDS) + 1)

static __always_inline __u64 sum_of_copies(struct xdp_md *ctx, __u32 from, __u32 bytes) {
    __u64 words[COPIED_WORDS], sum = 0;

    for (int i = 0; i < MOST_COPIES && from < bytes; i++, from += sizeof(words)) {
        const __u32 left = bytes - from, part = left < sizeof(words) ? left : sizeof(words);
        for (int j = 0; j < COPIED_WORDS; j++)
            words[j] = 0;
        if (!part || part > sizeof(words) || bpf_xdp_load_bytes(ctx, from, words, part))
            return 0;
        for (int j = 0; j < COPIED_WORDS; j++)
            sum += frame_sum_word(words[j]);
    }
    return sum;
}

// The sum of RFC 1071 from the IPv6 addresses to the frame's end, and the rest of the pseudo header (RFC
// 8200).
static __always_inline bool udp_sum_holds(struct xdp_md *ctx, void *data, void *data_end, __u32 bytes) {
    const __u32 from = settings.layout.ip_at + offsetof(struct ipv6hdr, saddr);
    const __u32 udp_bytes = bytes - settings.layout.udp_at;
    __u64 sum = bpf_htons(udp_bytes) + bpf_htons(IPPROTO_UDP);
    __u16 *half = data + from;
    __u64 *word;

    if (settings.in_buffers)
        return frame_sum_fold(sum + sum_of_copies(ctx, from, bytes)) == 0xffff;
    for (int i = 0; i < 4 && (void *)(half + 1) <= data_end && (from + 2 * i) % 8; i++)
        sum += *half++;
    word = (void *)half;
    for (int i = 0; i < MOST_WORDS && (void *)(word + 1) <= data_end; i++)
        sum += frame_sum_word(*word++);
    half = (void *)word;
    for (int i = 0; i < 4 && (void *)(half + 1) <= data_end; i++)
        sum += *half++;
    if ((void *)half + 1 <= data_end)
        sum += bpf_htons(*(__u8 *)half << 8);
    return frame_sum_fold(sum) == 0xffff;
}

// With a tag or of IPv6.
static __always_inline bool has_longer_head(struct xdp_md *ctx, void *data, void *data_end, __u32 bytes) {
    const struct frame_layout layout = settings.layout;

    return frame_has_shape(data, bytes, &layout) &&
           (!layout.sum_at || udp_sum_holds(ctx, data, data_end, bytes));
}

// Of all its buffers.
static __always_inline __u32 length_of(struct xdp_md *ctx, void *data, void *data_end) {
    return settings.in_buffers ? bpf_xdp_get_buff_len(ctx) : data_end - data;
}

static __always_inline bool is_as_sent(struct xdp_md *ctx, void *data, void *data_end, __u32 head_words,
                                       __u32 bytes) {
    if (length_of(ctx, data, data_end) != bytes)
        return false;
    return head_words == PLAIN_HEAD_WORDS ? frame_is_plain_ipv4(data, bytes)
                                          : has_longer_head(ctx, data, data_end, bytes);
}

static __always_inline void count_size(__u32 index) {
    const __u32 zero = 0;

    struct size_counts *counts = bpf_map_lookup_elem(&by_size, &zero);
    if (counts)
        counts->frames[index]++;
}

static __always_inline void count_foreign(struct receive_counters *counts, __u32 bytes) {
    counts->foreign++;
    counts->foreign_bytes += bytes;
}

static __always_inline int take_other(struct receive_counters *counts, struct xdp_md *ctx, void *data,
                                      void *data_end, __u32 magic) {
    bool ours = goes_to_test_port(data, data_end);

    if (ours && !((magic ^ PAYLOAD_MAGIC) & ~PAYLOAD_RUN_ID_MASK)) {
        counts->bad_run_id++;
        return XDP_DROP;
    }
    count_foreign(counts, length_of(ctx, data, data_end));
    counts->damaged += ours;
    return ours ? XDP_DROP : XDP_PASS;
}

static __always_inline int refuse_altered(struct receive_counters *counts, __u32 bytes) {
    count_foreign(counts, bytes);
    counts->altered++;
    return XDP_DROP;
}

static __always_inline int receive(struct xdp_md *ctx, __u32 head_words, __u32 sizes) {
    void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
    __u64 *stamp = (__u64 *)data + head_words;
    __u32 *sequence = (__u32 *)(stamp + 1);
    const __u32 zero = 0;

    struct receive_counters *counts = bpf_map_lookup_elem(&counters, &zero);
    if (!counts)
        return XDP_ABORTED;
    if ((void *)(sequence + 1) > data_end)
        return take_other(counts, ctx, data, data_end, 0);
    __u64 word = bpf_be64_to_cpu(stamp[-1]);
    __u32 magic = word >> 16, label = word & PAYLOAD_LABEL_MASK;
    if (magic != settings.magic)
        return take_other(counts, ctx, data, data_end, magic);
    __u64 number = whole_number(&memory.streams[stream_of(label)], bpf_ntohl(*sequence));
    __u32 index = frame_size_index(sizes, number); // its number tells which size it was sent with
    __u32 bytes = sizes == 1 ? settings.sizes.largest : settings.sizes.bytes[index];
    if (!is_as_sent(ctx, data, data_end, head_words, bytes))
        return refuse_altered(counts, length_of(ctx, data, data_end));
    if (!record_sequence(counts, label, number)) {
        counts->stale++;
        return XDP_DROP;
    }
    counts->by_queue[ctx->rx_queue_index & (MAX_QUEUES - 1)]++;
    counts->bytes += bytes;
    if (sizes > 1)
        count_size(index);
    if (word & PAYLOAD_STAMPED && settings.keep_arrivals)
        record_arrival(ctx, counts, label, number);
    else if (word & PAYLOAD_STAMPED)
        record_times(ctx, counts, label, number, *stamp);
    return XDP_DROP;
}

// With the usual head and one size as constants; the verifier takes out the branch that is not asked for.
SEC("xdp")
int receive_frame(struct xdp_md *ctx) {
    const __u32 head_words = settings.layout.head_words, sizes = settings.sizes.count;

    if (settings.plain) // the port's host gets what is its own
        return goes_to_test_port((void *)(long)ctx->data, (void *)(long)ctx->data_end) ? XDP_DROP : XDP_PASS;
    return head_words == PLAIN_HEAD_WORDS && sizes == 1 ? receive(ctx, PLAIN_HEAD_WORDS, 1)
                                                        : receive(ctx, head_words, sizes);
}
