/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the BPF programs and user space hand to each other. */

#include "payload.h"
#include <linux/types.h>

#define MAX_QUEUES 64  /* receiving queues counted one by one */
#define MAX_STREAMS 64 /* sending CPUs (live) or queues (afxdp) */

/* ---- sending (send.bpf.c) ---- */

struct send_settings {
    __u32 paced;       /* 0: as fast as possible */
    __u32 stamp_every; /* 0: never, 1: every frame, N: one frame in N */
    __u32 streams;
    __u32 flows;
};

struct send_window {
    __u64 start_ns; /* CLOCK_MONOTONIC; 0: not yet known */
    __u64 end_ns;
};

/* The .bss of send.bpf.c, mapped by user space. */
struct send_memory {
    struct send_window window;
    struct frame_head heads[MAX_FLOWS]; /* by flow */
};

/* Schedules count in 2^-20 ns: a rate of 3 Mpps does not drift within the
 * longest burst, and an hour still fits. */
#define SCHEDULE_SHIFT 20

#define LATE_NS 100000

/* One per CPU: written before a burst, read while and after it. */
struct sender {
    __u64 sequence; /* of the next frame; its low 32 bits are sent */
    __u64 end_sequence;
    __u64 check_at;   /* at max load: the sequence number at which the clock is read
                         again */
    __u64 checked_ns; /* and when it was read last */
    __u64 interval;   /* paced: 2^-20 ns between two frames, and when the next is
                         due */
    __u64 due;
    __u64 stopped_ns; /* when the burst's end was noticed; 0: not yet */
    __u64 longest_pause_ns;
    __u64 latest_ns;    /* paced: how long after its due time a frame was sent, at
                           most */
    __u64 late_packets; /* paced: frames sent more than LATE_NS after they were
                           due */
    __u32 flow;
    __u32 stream;
    __u32 until_stamp;
    __u32 armed; /* the program has run on this CPU */
};

/* ---- refused frames (refused.bpf.c) ---- */

struct refused_settings {
    __u32 ifindex;
    __u32 netns; /* inode number: two namespaces may use the same ifindex */
};

/* The .bss of refused.bpf.c, mapped by user space. */
struct refused_memory {
    __u64 took_some; /* the device took a frame */
    __u64 frames;    /* it refused, of batches that reached it */
};

/* ---- receiving (receive.bpf.c) ---- */

struct receive_settings {
    __u32 magic; /* the run id is in it */
    __u32 streams;
    __u32 udp_port;
};

/* A frame is a duplicate if its number was seen among the last SEEN_SLOTS
 * numbers of its stream. */
#define SEEN_SLOTS 8192

struct receive_stream {
    __u32 first; /* sequence number the burst began with */
    __u32 next;  /* one more than the highest seen */
    __u32 seen[SEEN_SLOTS];
};

/* Log-linear: values below 2^SUB_BITS exactly, above it 2^SUB_BITS buckets an
 * octave: 0.8 % wide. */
#define SUB_BITS 7
#define SUB_BUCKETS (1 << SUB_BITS)
#define VALUE_BITS 36 /* 68 s; a stamp older than this is not one */
#define OCTAVES (VALUE_BITS - SUB_BITS + 1)
#define HISTOGRAM_BUCKETS (OCTAVES * SUB_BUCKETS)

/* The .bss of receive.bpf.c, mapped by user space. */
struct receive_memory {
    struct receive_stream streams[MAX_STREAMS];
};

/*
 * One per CPU, histogram included: one look-up a frame. Just below the 32 kB a
 * per-CPU value may have. Test frames of this burst, duplicates included, are
 * the sum of by_queue.
 */
struct receive_counters {
    __u64 duplicates;  /* seen before */
    __u64 reordered;   /* not duplicates, and behind a higher number of their stream
                          (RFC 4737) */
    __u64 stale;       /* of an earlier burst */
    __u64 bad_run_id;  /* the magic of another run */
    __u64 foreign;     /* without the magic */
    __u64 damaged;     /* those of them that go to the test's UDP port: dropped, the
                          others are passed on */
    __u64 bad_stamps;  /* stamps from the future or older than a burst can be */
    __u64 latency_sum; /* ns */
    __u64 latency_min;
    __u64 latency_max;
    __u64 octave; /* of the last latency: the next one is likely to lie there too */
    __u64 by_queue[MAX_QUEUES];
    __u64 buckets[HISTOGRAM_BUCKETS];
};
