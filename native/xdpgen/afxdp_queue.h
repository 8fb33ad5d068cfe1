// SPDX-License-Identifier: Apache-2.0
// The queues of engine `afxdp`: each has a socket and a stream.
#pragma once

#include "engine.h"
#include "pcap.h"
#include "stamps.h"
#include "workers.h"
#include "xsk.h"

#define READY_FLOWS 1024

// One queue's stream. The worker writes it, the controlling thread reads the counts.
struct queue {
    struct xsk xsk;
    volatile uint64_t sequence;
    uint64_t end_sequence;
    uint64_t due;
    unsigned burst_left; // frames of the burst that is due
    struct flow_cursor flow;
    struct churned *churn; // of the stream's blocks, for the receiver; NULL: none looks
    // Of the first ranks, the most frequent ones. More of them would be in no cache.
    struct flow_words ready[READY_FLOWS];
    struct draw stamped;
    unsigned frame;    // of the pcap
    uint64_t round_ns; // with --recorded: when the pcap's round began
    unsigned left;     // frames that the kernel has not taken when the burst is over
    volatile struct stream_counts counts;
    struct looks looks;
    struct histogram late;
    struct sent_stamps *stamps; // by the device; NULL: not asked for
};

struct afxdp {
    const struct session *session;
    struct queue *queues;
    struct pcap pcap;
    uint64_t interval;         // between two bursts of a queue; 0: there is no rate
    _Atomic uint64_t start_ns; // 0: not yet known
    uint64_t end_ns;
    uint32_t failures_before;
};

extern struct afxdp afxdp;

// Called with each frame that the device stamped; `whose` is its queue.
void afxdp_sent(void *whose, const struct tx_metadata *metadata, const uint8_t *frame);

// With --recorded: when the queue's next frame is due, as schedules count.
uint64_t afxdp_recorded_due(const struct queue *queue);

// The kernel only reads a frame: what is the same in all of the usual ones is written once.
void afxdp_write_heads(const struct xsk *xsk);

// Makes ready what the frames of the queue's flows differ in.
void afxdp_make_ready(struct queue *queue);

// A worker's thread: serves its queues in turn until the window ends.
void afxdp_work(struct worker *worker);
