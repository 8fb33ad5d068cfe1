// SPDX-License-Identifier: Apache-2.0
// BPF_PROG_TEST_RUN of the program. FRAME is a size with FCS, or 0x and the frame's bytes without it. The
// frames come from the port that the program is attached to, by its receive queue QUEUE.
#pragma once

#include "program.h"

// `testrun FRAME REPEAT RUNS [QUEUE]`: RUNS times REPEAT packets in one buffer: from the second packet on the
// program sees what it made of the first. Prints ns per packet of each run.
void testrun(const struct program *program, char *arguments);

// `outcome FRAME REPEAT 1 [QUEUE]`: REPEAT packets, each an unchanged frame: prints what the program decided,
// how many it changed, and the mean time of a call by the kernel's clock.
void outcome(const struct program *program, char *arguments);

// `fresh FRAME REPEAT RUNS [QUEUE]`: RUNS times REPEAT packets, each an unchanged frame. Prints the mean time
// of a call in each run, the same of an empty program, and what this costs in one buffer. call_ns -
// empty_call_ns + empty_ns is what `testrun` gives of a program that leaves its frame as it is.
void fresh(const struct program *program, char *arguments);
