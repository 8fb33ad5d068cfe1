// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

// Number of the PTP clock of a device's own stamps; -1 where it has none.
int phc_index(const char *interface);

// Opens the PTP clock of a device's own stamps. Returns a file descriptor, or -1 where it has none.
int phc_open(const char *interface);

// Tells what has to be added to that clock's time to get CLOCK_MONOTONIC, now. Returns false if it cannot be
// read.
bool phc_to_monotonic(int clock, int64_t *offset);
