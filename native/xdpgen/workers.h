// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "session.h"

#include <stdatomic.h>

// The sending threads of one burst: one per CPU, pinned, at real-time priority where that was granted.

struct worker {
    unsigned index, cpu;
    int error; // negative errno of what ended it early
    const char *what;
    atomic_bool done;
};

int workers_start(const struct session *session, void (*work)(struct worker *worker));

bool workers_stopping(void);

// Negative errno, after failed(), where one has ended early.
int workers_check(void);

// CPU time that those at work have used so far.
uint64_t workers_cpu_ns(void);

// Interrupts and joins them all.
int workers_stop(void);
