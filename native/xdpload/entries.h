// SPDX-License-Identifier: Apache-2.0
// Entries of maps of data, from files: hashes, arrays and tries.
#pragma once

#include "options.h"
#include "program.h"

// Puts the entries of each file (MAP=FILE) into this load's own map, and reads them back. False, and an error
// line, where that cannot be.
bool fill_entries(const struct program *program, const struct settings *files);
