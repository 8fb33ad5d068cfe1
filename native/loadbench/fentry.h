// SPDX-License-Identifier: Apache-2.0
// The verifier's and the JIT's time by fentry and fexit, if the kernel has them.
#pragma once

#include "calls.h"

// Attaches to both functions. Fails with the reason.
void fentry_arm(void);

// From here on calls count anew.
void fentry_begin(void);

// What was seen since; NULL where not armed.
const struct calls *fentry_calls(void);
