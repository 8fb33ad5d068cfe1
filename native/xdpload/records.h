// SPDX-License-Identifier: Apache-2.0
// Reads what the program writes into ring buffers and perf event arrays, as its user would: a buffer that
// nobody reads is full after milliseconds, and the program then takes the path of a write that fails.
#pragma once

#include "program.h"

// Starts a thread that reads until the process ends, if the object has such maps. It runs where the scheduler
// puts it. Ends the process with an error line where a map cannot be read.
void records_read(const struct bpf_object *object);

// How many such maps are read.
unsigned records_maps(void);

// Waits until a quarter of each ring buffer at most is taken: for packets that are sent as fast as they go.
// -ETIME if nobody reads it meanwhile; records_unread() prints the error line.
int records_make_room(void);
void records_unread(void);

// `records`: waits until the reader has caught up; prints what it has read and what was lost since the start,
// its CPU time, and the CPUs on which it ran since the last answer.
void records(const struct program *program, char *arguments);
