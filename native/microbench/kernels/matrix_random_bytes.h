// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// The deeper trap: the matrix with get_random_bytes(), which runs the cipher anew for each number. Modules
// only.
#define NEXT_RANDOM(state) WORLD_RANDOM_BYTES(state)

#include "matrix.h"
