/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "session.h"

#define HISTOGRAM_BUCKETS (OCTAVES * SUB_BUCKETS)

/* Attaches the receiving program by a link, natively; refuses where another one is attached. */
int receive_open(const struct session *session);

/* Forgets what was counted; frames numbered below session->sequences are of an earlier burst from now on. */
int receive_begin(const struct session *session);

/* The sum over all CPUs. */
int receive_read(struct receive_counters *sum);
int receive_histogram(uint64_t buckets[HISTOGRAM_BUCKETS]);

/* The smallest value of a bucket, ns. */
uint64_t receive_lower_bound(unsigned bucket);

void receive_close(void);
