// SPDX-License-Identifier: Apache-2.0
// Objects that libbpf 1.0 and later refuses: legacy map definitions, symbols without types, relocations with
// and without addends. Reading them asks nothing of the kernel.
#pragma once

#include "elf_file.h"

#include <linux/bpf.h>

struct raw_map {
    const char *name;
    size_t section;
    size_t offset; // of the definition, within its section
    unsigned type, key_size, value_size, max_entries, flags;
    unsigned id;  // iproute2's, by which another map names this one
    int inner;    // the map whose kind this map of maps holds, or -1
    bool is_data; // made for a data section, whose bytes (NULL for zeros) it holds
    const void *contents;
    int fd; // once created, else -1
};

struct raw_fix { // an instruction that is to get the descriptor of a map
    size_t insn;
    size_t map;
};

struct raw_program {
    const char *name;
    const char *section;
    struct bpf_insn *insns; // the subprograms of .text appended
    size_t count;
    struct raw_fix *fixes;
    size_t fix_count;
    const char *wrong; // why it cannot be loaded, or NULL
};

struct raw_object {
    struct raw_map *maps;
    size_t map_count;
    struct raw_program *programs;
    size_t program_count;
    const char *license;
};

// Returns NULL, or why nothing of the object can be loaded. The object points into `elf`.
const char *raw_object_read(struct raw_object *object, const struct elf_file *elf);
void raw_object_free(struct raw_object *object);

// raw_maps.c
const char *raw_maps_read(struct raw_object *object, const struct elf_file *elf);
long raw_map_find(const struct raw_object *object, size_t section, size_t offset); // -1 where there is none
