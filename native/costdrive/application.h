// SPDX-License-Identifier: Apache-2.0
// The process that takes frames in user space.
#pragma once

#include <stdint.h>

struct code_range {
    uint64_t start, end;
};

// Prints where its code lies in memory, and returns the part of the program itself, without its libraries.
struct code_range application_open(unsigned pid);

// Sleeps until it has done with all frames; at once without one.
void application_finish(void);
