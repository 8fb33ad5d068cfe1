// SPDX-License-Identifier: Apache-2.0
// The frames of a measurement, and how they reach the program.
#pragma once

#include "options.h"
#include "shared.h"

struct frames {
    struct given_frame *items;
    unsigned count;
};

struct frames frames_read(const char *path);

// Opens what the way needs: a sender's program, or a packet socket. Ends the process with an error line.
void sender_open(const struct options *options, const struct frames *frames, int program);

// Sends so many frames, the given ones in turn, and waits until they are done with.
void sender_send(unsigned count);

// For how many of the frames last sent the program returned these actions; of test runs only.
struct returned {
    unsigned tx, pass;
};

struct returned sender_returned(void);

// Instructions of the program for the first frame: a nanosecond of the guest's clock is one. Of one that is
// bound to its device, an estimate.
unsigned program_cost(bool device_bound);

// Puts back what sender_open() changed.
void sender_close(void);

// The ids of the programs at the sender's port.
unsigned sender_id(void);
unsigned sink_id(void);
