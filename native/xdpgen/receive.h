/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "session.h"

/* Attaches the receiving program by a link, natively; refuses where another one
 * is attached. */
int receive_open(const struct session *session);

/* Forgets what was counted; frames numbered below session->sequences are of an
 * earlier burst from now on. */
int receive_begin(const struct session *session);

/* The sum over all CPUs. */
int receive_read(struct receive_counters *sum);

/* Test frames, duplicates included. */
uint64_t receive_packets(const struct receive_counters *counters);

/* The smallest value of a bucket, ns. */
uint64_t receive_lower_bound(unsigned bucket);

void receive_close(void);
