// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "histogram.h"

#include <stdint.h>

// Histograms in user space: sums of those that the CPUs filled, each on its own.

// The smallest value of a bucket, ns.
uint64_t histogram_lower_bound(unsigned bucket);

uint64_t histogram_count(const struct histogram *histogram);

void histogram_add(struct histogram *sum, const struct histogram *one);

// Empties a per-CPU map of one histogram; `values` has room for all possible CPUs. Returns 0 or a negative
// errno after failed().
int histograms_reset(int map, struct histogram *values);

// The sum over all CPUs.
int histograms_read(int map, struct histogram *values, struct histogram *sum);
