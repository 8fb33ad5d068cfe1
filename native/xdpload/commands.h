// SPDX-License-Identifier: Apache-2.0
// What xdpload does with its program when asked on standard input.
#pragma once

#include "program.h"

// Carries out one command line and prints its answer, or an error line.
void run_command(const struct program *program, char *line);
