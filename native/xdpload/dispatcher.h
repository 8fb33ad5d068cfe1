// SPDX-License-Identifier: Apache-2.0
// The kernel calls attached XDP programs by direct jumps, and patches this code when a program gets its first
// attachment or loses its last: it then waits for all CPUs, 0.2 s if one of them is busy with frames. A
// program with a second attachment stays in that code.
#pragma once

#include <stdbool.h>

struct holder {
    int namespace;
    int link;
};

#define NOT_HELD ((struct holder){-1, -1})

// Attaches a program to the loopback of a private network namespace, in which no frame is ever sent.
// Returns false with errno; `let_go` what it holds in any case.
bool hold(struct holder *holder, int program);
void let_go(struct holder *holder);
