// SPDX-License-Identifier: Apache-2.0
#pragma once

// How many entries a map of this type is created with; `wanted` is what the object says, 0 if its owner sets
// it.
unsigned map_entries(unsigned type, unsigned wanted);
