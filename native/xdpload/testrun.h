// SPDX-License-Identifier: Apache-2.0
// BPF_PROG_TEST_RUN of the program. FRAME is a size with FCS, or 0x and the frame's bytes without it. The
// frames come from the port that the program is attached to, by its receive queue QUEUE.
#pragma once

#include "program.h"

// `testrun FRAME REPEAT RUNS [QUEUE]`: RUNS times REPEAT packets in one buffer: from the second packet on the
// program sees what it made of the first. Prints ns per packet of each run.
void testrun(const struct program *program, char *arguments);

// `frames COUNT`, and as many lines FRAME QUEUE: the frames of the next commands.
void frames(const struct program *program, char *arguments);

// `outcomes ROUNDS`: all frames in turn, unchanged each time: prints what the program decided, how many it
// changed, and the mean time of a call by the kernel's clock.
void outcomes(const struct program *program, char *arguments);

// `fresh ROUNDS RUNS`: RUNS times ROUNDS times all frames in turn, unchanged each time. Prints the mean time
// of a call in each run, the same of an empty program, and what this costs in one buffer. call_ns -
// empty_call_ns
// + empty_ns is what `testrun` gives of a program that leaves its frames as they are.
void fresh(const struct program *program, char *arguments);
