// SPDX-License-Identifier: Apache-2.0
// Which flow a frame is of: it follows from the frame's place in its burst, so that sender and receiver agree
// on it without a field.
#pragma once

#include "payload.h"

#include <stdbool.h>

// Schedules count in 2^-20 ns: a rate of 3 Mpps does not drift within the longest burst, and an hour still
// fits.
#define SCHEDULE_SHIFT 20

// A stream's flows are ranked from 0, the most frequent one. Below rank `below[i]`, in 2^-11, lie the first
// i / 4096 of its frames.
#define RANK_SLOTS 4096
#define RANK_SHIFT 11

// Ranks 0, 1 to 2, 3 to 6, and so on: the flows of all streams that have these.
#define RANK_OCTAVES 21

struct ranks {
    __u32 below[RANK_SLOTS + 1];
};

struct flows {
    __u32 count, streams;
    __u32 longer; // so many streams have one flow more than the others
    __u32 drawn;  // by `ranks`; 0: in turn
    __u32 seed;
    __u32 by_number;      // a frame's label is its stream, not its flow
    __u64 churn_interval; // 2^-20 ns between two flows of a stream that are replaced; 0: none is
};

// How far churn was when a stream's frames of one block were made: each of its flows had been replaced
// `rounds` times, and those of the first ranks once `more`.
struct churned {
    __u32 rounds, more;
};

#define CHURN_FRAMES 16   // a block's
#define CHURN_BLOCKS 4096 // that the receiver remembers of each stream

static inline __attribute__((always_inline)) __u32 churn_slot(__u32 stream, __u64 number) {
    return stream * CHURN_BLOCKS + (number / CHURN_FRAMES & (CHURN_BLOCKS - 1));
}

static inline __attribute__((always_inline)) __u32 flow_generation(struct churned churned, __u32 rank) {
    return churned.rounds + (rank < churned.more);
}

static inline __attribute__((always_inline)) __u32 flows_of_stream(const volatile struct flows *flows,
                                                                   __u32 stream) {
    return (flows->count - stream + flows->streams - 1) / flows->streams;
}

// The longer streams have a table of their own.
static inline __attribute__((always_inline)) __u32 ranks_of_stream(const volatile struct flows *flows,
                                                                   __u32 stream) {
    return stream < flows->longer;
}

// SplitMix64 (Steele, Lea, Flood 2014), from a state of each stream's own.
static inline __attribute__((always_inline)) __u32 draw_rank(const struct ranks *ranks, __u64 seed,
                                                             __u32 stream, __u64 index) {
    __u64 draw = (seed << 32 | stream) * 0xd1342543de82ef95ull + index * 0x9e3779b97f4a7c15ull;

    draw = (draw ^ draw >> 30) * 0xbf58476d1ce4e5b9ull;
    draw = (draw ^ draw >> 27) * 0x94d049bb133111ebull;
    draw ^= draw >> 31;
    const __u32 slot = draw >> 52, below = ranks->below[slot];
    return (below + ((__u64)(ranks->below[slot + 1] - below) * (__u32)(draw >> 20) >> 32)) >> RANK_SHIFT;
}

// What a sender knows of its stream.
struct flow_cursor {
    __u32 stream;
    __u32 count; // of its flows
    __u32 rank;  // the next one in turn
    __u64 first; // number of the burst's first frame
    struct churned churned;
};

static inline __attribute__((always_inline)) __u32 next_rank(struct flow_cursor *cursor,
                                                             const volatile struct flows *flows,
                                                             const struct ranks *ranks, __u64 number) {
    if (flows->drawn)
        return draw_rank(ranks, flows->seed, cursor->stream, number - cursor->first);
    const __u32 rank = cursor->rank;
    cursor->rank = rank + 1 < cursor->count ? rank + 1 : 0;
    return rank;
}

// Whether a sender has to look how far churn is.
static inline __attribute__((always_inline)) bool begins_block(const struct flow_cursor *cursor,
                                                               __u64 number) {
    return number % CHURN_FRAMES == 0 || number == cursor->first;
}

static inline __attribute__((always_inline)) void follow_churn(struct flow_cursor *cursor, __u64 interval,
                                                               __u64 elapsed_ns) {
    const __u64 replaced = (elapsed_ns << SCHEDULE_SHIFT) / interval;

    cursor->churned = (struct churned){replaced / cursor->count, replaced % cursor->count};
}

// The first flow, and from one to the next; in host byte order.
struct flow_steps {
    __u32 src_ip, dst_ip, src_port;
    __u32 src_ip_stride, dst_ip_stride, port_stride;
    __u32 addresses; // flows beyond so many repeat them: they exist where there are fewer flows than streams
};

static inline __attribute__((always_inline)) struct frame_flow
flow_of_rank(const struct flow_cursor *cursor, const volatile struct flows *flows,
             const volatile struct flow_steps *steps, __u32 rank) {
    const __u32 flow = cursor->stream + flows->streams * rank;
    __u32 address = flow < steps->addresses ? flow : flow % steps->addresses;

    if (flows->churn_interval)
        address += steps->addresses * flow_generation(cursor->churned, rank);
    return (struct frame_flow){
        .src_ip = steps->src_ip + steps->src_ip_stride * address,
        .dst_ip = steps->dst_ip + steps->dst_ip_stride * address,
        .src_port = steps->src_port + steps->port_stride * address,
        .label = flows->by_number ? cursor->stream : flow,
    };
}
