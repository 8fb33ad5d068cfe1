// SPDX-License-Identifier: Apache-2.0
// Two programs take turns on the interface while it carries traffic.
#pragma once

#include "program.h"

// `alternate ID SLICE_US PAIRS SEED`: prints what the interface received in each slice.
void alternate(const struct program *program, char *arguments);
