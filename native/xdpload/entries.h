// SPDX-License-Identifier: Apache-2.0
// Entries of maps of data, from files: hashes, arrays, tries, and maps of these.
#pragma once

#include "options.h"
#include "program.h"

// Before the object is loaded.
void remember_inner_maps(struct bpf_object *object);

// Puts a file's entries into a map, and reads them back. The file has all keys, then all values; or one value
// for every index; or maps in a map. False, and an error line, where that cannot be.
bool fill_from(const struct bpf_map *map, const char *path);

// Puts the entries of each file (MAP=FILE) into this load's own map, and reads them back. False, and an error
// line, where that cannot be.
bool fill_entries(const struct program *program, const struct settings *files);
