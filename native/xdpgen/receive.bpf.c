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

/*
 * These instructions bound the index for the verifier, however the compiler has compared it before: clang 19
 * and newer compare one register and index by another. The compiler cannot see through the asm. It can
 * neither drop the bound nor use an older copy of the index.
 */
static __always_inline __u64 at_most(__u64 index, const __u64 last) {
    asm volatile("if %[index] <= %[last] goto +1\n\t"
                 "%[index] = %[last]"
                 : [index] "+r"(index)
                 : [last] "i"(last));
    return index;
}

static __always_inline __u32 log2_floor(__u64 value) {
    __u32 result = 0;

#define HALVE(bits)                                                                                          \
    if (value >> (bits)) {                                                                                   \
        value >>= (bits);                                                                                    \
        result += (bits);                                                                                    \
    }
    HALVE(32)
    HALVE(16)
    HALVE(8)
    HALVE(4)
    HALVE(2)
#undef HALVE
    return result + (value >> 1);
}

/* The octave a latency lies in: mostly the one of the latency before. */
static __always_inline __u32 find_octave(struct receive_counters *counts, __u64 ns) {
    __u32 octave = counts->octave;

    if (octave && ns >> (octave - 1) >> SUB_BITS == 1)
        return octave;
    octave = ns < SUB_BUCKETS ? 0 : log2_floor(ns) - SUB_BITS + 1;
    counts->octave = octave;
    return octave;
}

static __always_inline void record_latency(struct receive_counters *counts, __u64 ns) {
    __u32 octave = find_octave(counts, ns);
    __u64 sub = (octave ? ns >> (octave - 1) : ns) & (SUB_BUCKETS - 1);
    __u64 bucket = (__u64)octave * SUB_BUCKETS + sub;

    if (bucket >= HISTOGRAM_BUCKETS) {
        counts->bad_stamps++;
        return;
    }
    counts->buckets[at_most(bucket, HISTOGRAM_BUCKETS - 1)]++;
    counts->latency_sum += ns;
    if (ns < counts->latency_min)
        counts->latency_min = ns;
    if (ns > counts->latency_max)
        counts->latency_max = ns;
}

/* Returns false for a frame of an earlier burst. */
static __always_inline bool record_sequence(struct receive_counters *counts, __u32 flow, __u32 sequence) {
    __u32 index = settings.streams == 1 ? 0 : flow % settings.streams;
    struct receive_stream *stream = &memory.streams[index & (MAX_STREAMS - 1)];

    if ((__s32)(sequence - stream->first) < 0)
        return false;
    __u32 *seen = &stream->seen[sequence & (SEEN_SLOTS - 1)];
    if (*seen == sequence + 1) {
        counts->duplicates++;
        return true;
    }
    *seen = sequence + 1; /* 0 means never */
    if ((__s32)(sequence - stream->next) >= 0)
        stream->next = sequence + 1;
    else
        counts->reordered++;
    return true;
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
    if (!record_sequence(counts, flow, bpf_ntohl(*sequence))) {
        counts->stale++;
        return XDP_DROP;
    }
    counts->by_queue[ctx->rx_queue_index & (MAX_QUEUES - 1)]++;
    if (word & PAYLOAD_STAMPED)
        record_latency(counts, bpf_ktime_get_ns() - words[FRAME_STAMP_WORD]);
    return XDP_DROP;
}
