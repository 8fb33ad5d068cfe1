// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "clock.h"
#include "options.h"
#include "payload.h"

struct engine;

// Everything that holds from the ready line to the end.
struct session {
    struct options options;
    const struct engine *engine;
    unsigned ifindex, receive_ifindex;
    unsigned streams; // what is numbered on its own: a CPU (live) or a queue                          (afxdp)
    struct flows flows; // at least one for each stream; those beyond --flows repeat addresses
    struct flow_steps steps;
    struct ranks ranks[2];
    bool recognised; // frames carry the payload
    bool in_buffers; // the receiving device's MTU is above Ethernet's: frames may come in several buffers
    bool fifo;       // real-time priority was granted
    char sched_policy[64];
    // live: why its program is not held in the kernel's XDP dispatcher; NULL where it is
    const char *not_held;
    unsigned seed;                   // of the next burst's draws
    struct frame_head head;          // of all frames, without what their flows differ in
    uint64_t sequences[MAX_STREAMS]; // of each stream's next frame; they go on from burst to burst
};

// Whether frames are due at times of their own.
static inline bool session_paced(const struct session *session) {
    return session->options.rate_pps || session->options.recorded;
}

int session_open(struct session *session);

// How its options and streams make flows; a part of session_open.
int session_set_flows(struct session *session);
void session_close(struct session *session);

// How many distinct queues the streams reach.
unsigned session_queues_reached(const struct session *session);
