// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "options.h"

#include <stdatomic.h>

// Set by SIGINT and SIGTERM.
extern atomic_bool interrupted;

// Fills an empty list with the first `wanted` CPUs this process may use; refuses CPUs it may not.
int cpus_choose(struct cpu_list *list, unsigned wanted);

// Pins the calling thread.
int thread_pin(unsigned cpu);

// Gives the calling thread a SCHED_FIFO priority. Returns 0 or a negative errno, without failed().
int thread_fifo(unsigned priority);

// So that a blocking system call of the thread it is sent to ends: SIGUSR1, which does nothing else.
void thread_interrupts_install(void);
