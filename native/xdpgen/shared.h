// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the BPF programs and user space hand to each other.

#include "flows.h"
#include "frame_sizes.h"
#include "histogram.h"
#include "payload.h"
#include <linux/types.h>

#define MAX_QUEUES 64  // receiving queues counted one by one
#define MAX_STREAMS 64 // sending CPUs (live) or queues (afxdp)

// ---- drawing frames at random ----

// Which frames are stamped, or looked at: one in `mean`, at random distances. Flows and sizes come in turn:
// at a fixed distance some of them would never be drawn.
struct draw {
    __u32 state; // of Marsaglia's xorshift32; not 0
    __u32 left;  // frames until the next that is drawn
};

// Uniform from 1 to 2 mean - 1.
static inline __attribute__((always_inline)) __u32 draw_distance(struct draw *draw, __u32 mean) {
    draw->state ^= draw->state << 13;
    draw->state ^= draw->state >> 17;
    draw->state ^= draw->state << 5;
    return 1 + ((__u64)draw->state * (2 * mean - 1) >> 32);
}

// `which` tells the draws of one seed apart.
static inline void draw_begin(struct draw *draw, __u32 seed, __u32 which, __u32 mean) {
    __u32 mixed = seed + which * 0x9e3779b9u;

    mixed = (mixed ^ mixed >> 16) * 0x85ebca6bu; // the finalizer of MurmurHash3
    mixed = (mixed ^ mixed >> 13) * 0xc2b2ae35u;
    draw->state = (mixed ^ mixed >> 16) ?: 1;
    draw->left = mean ? draw_distance(draw, mean) : 0;
}

// Whether the next frame is drawn; mean 0: none is.
static inline __attribute__((always_inline)) bool drawn(struct draw *draw, __u32 mean) {
    if (mean <= 1)
        return mean;
    if (--draw->left)
        return false;
    draw->left = draw_distance(draw, mean);
    return true;
}

// ---- sending (send.bpf.c) ----

// The kernel makes each live frame with so much metadata before it, and the sender takes it off: a context
// that was changed makes the kernel write the frame's pointers and length anew (ctx_was_changed of
// net/bpf/test_run.c). Else a page comes with what the DUT's program gave the frame before.
#define LIVE_METADATA 4

// Bytes of a frame that every lap writes anew: what is behind them is 0.
static inline __attribute__((always_inline)) __u32 live_written(__u32 head_words) {
    return 8 * head_words + sizeof(__u64) + sizeof(__u32);
}

struct send_settings {
    __u32 paced;       // 0: as fast as possible
    __u32 stamp_every; // 0: never, 1: every frame, N: one frame in N, drawn
    __u32 look_every;  // the same for the frames whose payload is looked at
    __u32 burst;       // paced: so many frames are due at once
    __u32 plain;       // frames leave as the kernel made them, while `sending` is set
    __u32 alone;       // enum alone: the frames do not leave
    struct flows flows;
    struct flow_steps steps;
    struct frame_layout layout;
    struct frame_sizes sizes;
    struct frame_head head;
};

// What of sender, link and receiver is measured by itself.
enum alone { ALONE_NOT, ALONE_SENDER, ALONE_RECEIVER };

struct send_window {
    __u64 start_ns; // CLOCK_MONOTONIC; 0: not yet known
    __u64 end_ns;
};

#define ZEROS 4096 // more than a frame has, which is less than a page

// The .bss of send.bpf.c, mapped by user space.
struct send_memory {
    struct send_window window;
    __u32 sending;  // of plain frames: set when the window begins, cleared by user space
    __u32 restores; // a payload was changed: all frames are written whole
    char zeros[ZEROS];
    struct ranks ranks[2];
};

#define LATE_NS 100000

// When a sender at max load looked at the clock, and what that tells of the times it stood still. A pause is
// longer than PAUSE_NS, and than four of the usual spacings: a slow DUT makes these long too.
#define PAUSE_NS 1000000

#define ALL_ONES (~0ULL)

struct looks {
    __u64 last_ns;    // 0: none yet
    __u64 spacing_ns; // between the last two looks with no pause between them
    __u64 longest_ns;
    __u64 paused_ns; // the sum of the pauses
};

static inline __attribute__((always_inline)) void look(struct looks *looks, __u64 now) {
    __u64 spacing = now - looks->last_ns;

    if (looks->last_ns) {
        if (spacing > looks->longest_ns)
            looks->longest_ns = spacing;
        if (looks->spacing_ns && spacing > PAUSE_NS && spacing > 4 * looks->spacing_ns)
            looks->paused_ns += spacing;
        else
            looks->spacing_ns = spacing;
    }
    looks->last_ns = now;
}

// One per CPU: written before a burst, read while and after it.
struct sender {
    __u64 sequence; // of the next frame; its low 32 bits are sent
    __u64 end_sequence;
    __u64 check_at; // at max load: the sequence number at which the clock is read again
    struct looks looks;
    __u64 interval; // paced: 2^-20 ns between two bursts, and when the next is                        due
    __u64 due;
    __u32 burst_left;   // frames of the burst that is due
    __u64 stopped_ns;   // when the burst's end was noticed; 0: not yet
    __u64 latest_ns;    // paced: how long after its due time a frame was sent, at most
    __u64 late_packets; // paced: frames sent more than LATE_NS after they were                            due
    struct flow_cursor flow;
    struct draw stamped, looked_at;
    __u64 whole_from; // number of the first frame that was written whole; ALL_ONES: none was
    __u32 armed;      // the program has run on this CPU
};

// ---- refused frames (refused.bpf.c) ----

struct refused_settings {
    __u32 ifindex;
    __u32 netns; // inode number: two namespaces may use the same ifindex
};

// ---- receiving (receive.bpf.c) ----

struct receive_settings {
    __u32 magic; // the run id is in it
    __u32 burst; // frames that are due at once
    __u32 udp_port;
    __u32 plain;         // frames are dropped, the device counts them
    __u32 keep_arrivals; // of stamped frames, to be compared with when they were sent
    __u32 in_buffers;    // a frame may come in several buffers, of which a pointer sees the first
    struct flows flows;
    struct frame_layout layout;
    struct frame_sizes sizes;
};

// Frames by their place in the cycle of sizes.
struct size_counts {
    __u64 frames[MOST_SIZES];
};

// A frame is a duplicate if its number was seen among the last SEEN_SLOTS numbers of its stream.
#define SEEN_SLOTS 8192

struct receive_stream {
    __u64 first;            // number the burst began with
    __u64 next;             // one more than the highest seen
    __u32 seen[SEEN_SLOTS]; // low halves of numbers; a slot that holds none has those of another slot
};

// When the frames of a paced burst were due: its sender's schedule.
struct receive_schedule {
    __u64 start_ns; // CLOCK_MONOTONIC
    __u64 interval; // 2^-20 ns between two bursts of a stream; 0: not paced
    __u64 stagger;  // and between the first ones of two streams
};

// When a stamped frame came back, by the device's clock. A stream's frames have a slot each by their number:
// more than are on the way at once.
#define ARRIVAL_SLOTS (1 << 17)

struct arrival {
    __u64 number;
    __u64 ns; // 0: none came
};

// The clock of the device's own stamps.
struct receive_clock {
    __s64 to_monotonic; // what has to be added to a stamp
    __u32 known;        // 0: it cannot be compared
    __u32 error;        // the errno with which the driver last gave no stamp; 0: it gave 0
};

// A flow that was replaced is another one in the same place. Where none is, this is not kept.
struct replaced_flow {
    __u32 generation; // one more than how often it was replaced before the newest that was seen; 0: none was
    __u32 seen;       // how many of the place were
};

// The .bss of receive.bpf.c, mapped by user space.
struct receive_memory {
    struct receive_schedule schedule;
    struct receive_clock clock;
    struct ranks ranks[2];
    __u64 flow_next[MAX_FLOWS]; // one more than the highest number seen; apart, so that caches hold more of
                                // them
    struct replaced_flow replaced[MAX_FLOWS];
    struct receive_stream streams[MAX_STREAMS];
};

// One per CPU, histogram included: one look-up a frame. Just below the 32 kB a per-CPU value may have. Test
// frames of this burst, duplicates included, are the sum of by_queue.
struct receive_counters {
    __u64 duplicates; // seen before
    __u64 reordered; // not duplicates, and behind a higher number of their flow                          (RFC
                     // 4737)
    __u64 stale;     // of an earlier burst
    __u64 bad_run_id; // the magic of another run
    __u64 foreign;    // without the magic, or altered
    __u64 damaged; // those of them without the magic that go to the test's UDP port: dropped, the others are
                   // passed on
    __u64 altered; // those of them with the run's magic, and other headers or another length than were sent:
                   // dropped
    __u64 unstamped;  // stamped when they were made, without a stamp of the device's on receipt
    __u64 bad_stamps; // stamps from the future or older than a burst can be
    __u64 arrived;    // arrivals kept
    __u64 bytes;      // of the frames in by_queue, and of the foreign ones: as they arrived, without FCS
    __u64 foreign_bytes;
    __u64 by_queue[MAX_QUEUES];
    __u64 by_octave[RANK_OCTAVES]; // where flows are drawn or replaced
    struct histogram latency;      // from the time the frame was made
};
