/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "session.h"

/* Attaches the receiving program by a link, natively; refuses where another one
 * is attached. */
int receive_open(const struct session *session);

/* Forgets what was counted; frames numbered below session->sequences are of an
 * earlier burst from now on. */
int receive_begin(const struct session *session);

/* Tells it when the frames of a paced burst are due, before the first is sent. */
void receive_schedule(const struct session *session, uint64_t start_ns);

/* Reads the clock of the device's own stamps again: it drifts. Does nothing where there is none. */
void receive_follow_clock(void);

/* Why the device gave the last frame without its stamp none. */
const char *receive_no_stamp(void);

/* The sum over all CPUs. */
int receive_read(struct receive_counters *sum);

/* Latencies from the time the frames were due, over all CPUs; empty where no pace was asked for. */
int receive_read_from_due(struct histogram *sum);

/* Test frames by their place in the cycle of sizes, over all CPUs; zeros where all frames have one size. */
int receive_read_sizes(struct size_counts *sum);

/* Where the receiving program keeps when frames of a stream came back; with --tx-stamp device. */
const struct arrival *receive_arrivals(unsigned stream);

/* The receiving program, for whoever hands it frames without a link. */
int receive_program_fd(void);

/* Test frames, duplicates included. */
uint64_t receive_packets(const struct receive_counters *counters);

void receive_close(void);
