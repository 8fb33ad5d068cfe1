// SPDX-License-Identifier: Apache-2.0
// The program under test, compiled for user space: swaps the MACs and makes N accesses on each frame.
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct workload {
    unsigned long (*run)(void *state, unsigned char *data, unsigned length);
    size_t state_bytes;
    bool reads_frame;    // all of it, so that a frame of several descriptors must lie in one piece
    unsigned char *init; // init_count states one after another
    size_t init_count;
};

void workload_open(struct workload *workload, const char *library, const char *init);

// Returns the state of one queue, aligned to a page.
void *workload_state(const struct workload *workload, unsigned queue);
