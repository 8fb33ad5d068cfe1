// SPDX-License-Identifier: Apache-2.0
// Objects that libbpf takes: it prepares maps, relocations and BTF; the loads themselves are ours
// (measure.h).
#pragma once

#include <stddef.h>

// Prints one line per program. Returns NULL, or libbpf's words where it cannot open the object (nothing is
// printed).
const char *libbpf_load(const char *path, const void *bytes, size_t size);
