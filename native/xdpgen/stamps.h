// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "shared.h"

#include <stdint.h>

// Frames whose stamps of sending are kept until they are compared: the oldest first. Half of ARRIVAL_SLOTS,
// so that its arrival is still there.
#define SENT_SLOTS (ARRIVAL_SLOTS / 2)

struct sent_totals {
    uint64_t stamped;   // the device told when it sent them
    uint64_t unstamped; // it was asked, and told nothing
    uint64_t matched;   // and came back with a stamp of the same clock
    uint64_t bad;       // of those: seen before they were sent, or too late
    struct histogram latency;
};

// One stream's: when the device sent its frames, and how long each was away, by the device's one clock.
struct sent_stamps {
    const struct arrival *arrivals; // of this stream
    struct sent_totals totals;
    struct sent {
        uint64_t number, ns; // 0: none
    } sent[SENT_SLOTS];
};

// Before a burst.
void stamps_reset(struct sent_stamps *stamps);

// The kernel has done with a frame that asked for a stamp: ns is the stamp, 0 if there is none.
void stamps_record(struct sent_stamps *stamps, uint64_t number, uint64_t ns);

// What is still to be compared; once no more frames come.
void stamps_finish(struct sent_stamps *stamps);

void stamps_add(struct sent_totals *sum, const struct sent_totals *one);
