// SPDX-License-Identifier: Apache-2.0
// The output: one JSON object per line on standard output, each written by one write(), so that a kill leaves
// no half line.
#pragma once

#include "forward.h"
#include "redirect.h"

// `fifo` 0: no real-time priority was requested; `refused`: the errno with which it was refused, or 0.
void report_ready(const struct queue *queues, unsigned count, const struct redirect *redirect, unsigned fifo,
                  int refused);
void report_stats(const struct queue *queues, unsigned count, const struct redirect *redirect);
void report_detached(void);
