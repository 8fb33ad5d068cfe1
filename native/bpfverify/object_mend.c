// SPDX-License-Identifier: Apache-2.0
// Cilium's objects: a map can be pinned in ways of its loader's own, and programs that are only reached by a
// tail call are static.
#include "object_mend.h"
#include "elf_file.h"

#include <linux/bpf.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool is_static_program(const struct elf_file *elf, const Elf64_Sym *symbol) {
    return ELF64_ST_TYPE(symbol->st_info) == STT_FUNC && ELF64_ST_BIND(symbol->st_info) == STB_LOCAL &&
           symbol->st_shndx < elf->section_count && elf_is_code(elf, symbol->st_shndx) &&
           strcmp(elf_section_name(elf, symbol->st_shndx), ".text") != 0;
}

static bool make_programs_global(const struct elf_file *elf, unsigned char *copy) {
    bool changed = false;
    for (size_t i = 0; i < elf->symbol_count; i++) {
        const Elf64_Sym *symbol = &elf->symbols[i];
        if (!is_static_program(elf, symbol))
            continue;
        copy[(const unsigned char *)&symbol->st_info - elf->bytes] = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
        changed = true;
    }
    return changed;
}

// Nothing is pinned here. A field of a map's definition that libbpf does not know, it can be told to ignore.
static bool hide_pinning(const struct elf_file *elf, unsigned char *copy) {
    static const char FIELD[] = "\0pinning"; // as one of BTF's strings: a zero before and behind it
    size_t section = elf_find_section(elf, ".BTF");
    const char *types = section ? elf_section_bytes(elf, section) : NULL;
    const char *found = types ? memmem(types, elf->sections[section].sh_size, FIELD, sizeof(FIELD)) : NULL;
    if (found)
        copy[(const unsigned char *)found - elf->bytes + 1] = 'P';
    return found;
}

void *object_mend(const void *bytes, size_t size) {
    struct elf_file elf;
    unsigned char *copy = elf_open(&elf, bytes, size) ? NULL : malloc(size);
    if (!copy)
        return NULL;
    memcpy(copy, bytes, size);
    bool mended = make_programs_global(&elf, copy);
    if (hide_pinning(&elf, copy) || mended)
        return copy;
    free(copy);
    return NULL;
}
