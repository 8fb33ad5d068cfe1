// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// A trap: the matrix with the random function that the world offers. In a module that is get_random_u32(),
// fed by a cipher; in BPF bpf_get_prandom_u32(), which is no more than a shift register. They are not the
// same work.
#define NEXT_RANDOM(state) WORLD_RANDOM(state)

#include "matrix.h"
