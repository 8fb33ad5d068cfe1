// SPDX-License-Identifier: Apache-2.0
// Counts what the program decides: instructions put before it call it, count its answer, and return it.
#pragma once

#include "program.h"

#define ACTIONS 6 // XDP_ABORTED .. XDP_REDIRECT, and every other answer

// Has the program loaded so. `section` and `name` are its own: no other program of the object is changed.
void actions_wrap(const char *section, const char *name);

// Sums over all CPUs since the program was loaded; returns 0 or -errno, also where it was not loaded so.
int actions_read(unsigned long long sums[ACTIONS]);

extern const char *const action_names[ACTIONS];
