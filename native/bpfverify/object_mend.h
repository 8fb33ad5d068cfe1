// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>

// Returns a copy of an object in which nothing is left that other loaders than libbpf understand and libbpf
// refuses: pinning of kinds of its own, and programs that are static. NULL if the object has neither, or
// there is no memory. The caller frees it.
void *object_mend(const void *bytes, size_t size);
