// SPDX-License-Identifier: Apache-2.0
// A load whose verifier needs much memory, for sure: to learn whether a kernel charges it.
#pragma once

#include <stdbool.h>

// The verifier's work takes more, on every kernel; the program itself a sixtieth of it.
#define KNOWN_LOAD_BYTES (1 << 20)

// Whether the kernel took it.
bool known_load(void);
