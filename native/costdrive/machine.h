// SPDX-License-Identifier: Apache-2.0
// What each machine has its own instructions for.
#pragma once

#include "marks.h"

#include <stdint.h>

// Tells costplugin an address, which no compiler knows.
void tell(enum mark mark, uint64_t address);
