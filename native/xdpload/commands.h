// SPDX-License-Identifier: Apache-2.0
// What xdpload does with its program when asked on standard input.
#pragma once

#include "program.h"

// Carries out one command line and prints its answer, or an error line.
void run_command(const struct program *program, char *line);

// `count`: the accesses that a counting build has made since `reset`.
void count(const struct program *program, char *arguments);
void reset(const struct program *program, char *arguments);

// `bpf_stats on|off`, `runstats`: the program's runs as the kernel counts them; `stats_cost`: what this
// costs.
void bpf_stats(const struct program *program, char *arguments);
void runstats(const struct program *program, char *arguments);
void stats_cost(const struct program *program, char *arguments);

// `dump xlated|jited FILE`: an image of the program.
void dump(const struct program *program, char *arguments);
