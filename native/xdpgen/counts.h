// SPDX-License-Identifier: Apache-2.0
// What the receiving program counts.
#pragma once

#include "session.h"

struct bpf_object;

// `clock` is that of the device's own stamps, -1 if there is none.
int counts_open(const struct session *session, struct bpf_object *object, int clock);

// Forgets what was counted; frames numbered below session->sequences are of an earlier burst from now on.
int counts_begin(const struct session *session);

// Tells it when the frames of a paced burst are due, before the first is sent.
void counts_schedule(const struct session *session, uint64_t start_ns);

// Reads the clock of the device's own stamps again: it drifts. Does nothing where there is none.
void counts_follow_clock(void);

// Why the device gave the last frame without its stamp none.
const char *counts_no_stamp(void);

// The sum over all CPUs.
int counts_read(struct receive_counters *sum);

// Latencies from the time the frames were due, over all CPUs; empty where no pace was asked for.
int counts_read_from_due(struct histogram *sum);

// Test frames by their place in the cycle of sizes, over all CPUs; zeros where all frames have one size.
int counts_read_sizes(struct size_counts *sum);

// Different flows of the session that were seen.
uint64_t counts_read_flows(const struct session *session);

// Test frames, duplicates included.
uint64_t counts_packets(const struct receive_counters *counters);

void counts_close(void);
