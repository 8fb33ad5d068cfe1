// SPDX-License-Identifier: Apache-2.0
#pragma once

// A program that is attached natively to any device stays in the kernel's XDP dispatcher. One that is not is
// put in and taken out again by each call of BPF_PROG_TEST_RUN, and each of the two waits until every CPU has
// left what it was doing: 24 ms of a burst.
//
// Attaches it to a tap that carries nothing, in a network namespace of its own: nothing of it is seen or
// left, whatever ends this process. Call it before there are threads. Returns NULL, or why the program is not
// held; what it was loaded for works all the same, only later.
const char *hold_open(int program);

void hold_close(void);
