// SPDX-License-Identifier: Apache-2.0
// Objects that libbpf refuses, loaded with bpf(2) alone.
#pragma once

#include "elf_file.h"

// Prints one line per program; `refused` are libbpf's words, told where this loader cannot load it either.
// Returns NULL, or why not one program can be named (then nothing is printed).
const char *raw_load(const char *path, const struct elf_file *elf, const char *refused);
