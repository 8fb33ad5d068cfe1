// SPDX-License-Identifier: Apache-2.0
// An ELF64 BPF object as untrusted bytes: every offset, index and name is checked when the file is
// opened, so that what reads it afterwards need not.
#pragma once

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>

struct elf_file {
    const unsigned char *bytes;
    size_t size;
    const Elf64_Shdr *sections;
    size_t section_count;
    const char *section_names;
    const Elf64_Sym *symbols;
    size_t symbol_count;
    const char *symbol_names;
};

// Returns NULL, or what is wrong with the file. `bytes` must be aligned to 8 and outlive `elf`.
const char *elf_open(struct elf_file *elf, const void *bytes, size_t size);

const char *elf_section_name(const struct elf_file *elf, size_t index);
const char *elf_symbol_name(const struct elf_file *elf, const Elf64_Sym *symbol);
const void *elf_section_bytes(const struct elf_file *elf, size_t index); // NULL for SHT_NOBITS
size_t elf_find_section(const struct elf_file *elf, const char *name);   // 0 where there is none
bool elf_is_code(const struct elf_file *elf, size_t index);

// The section that relocates `target`, or 0.
size_t elf_relocations_of(const struct elf_file *elf, size_t target);
