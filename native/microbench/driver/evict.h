// SPDX-License-Identifier: Apache-2.0
#ifndef MICROBENCH_EVICT_H
#define MICROBENCH_EVICT_H

#include <stddef.h>

// Reads and writes every line of a buffer of `bytes`: what the caches held before is in them no more.
void evict(size_t bytes);

#endif
