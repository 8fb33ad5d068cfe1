// SPDX-License-Identifier: Apache-2.0
#include "elf_file.h"

#include <linux/bpf.h>
#include <string.h>

static bool is_inside(const struct elf_file *elf, Elf64_Off offset, Elf64_Xword size) {
    return offset <= elf->size && size <= elf->size - offset;
}

static bool is_string_table(const struct elf_file *elf, const Elf64_Shdr *section) {
    return section->sh_type == SHT_STRTAB && section->sh_size &&
           elf->bytes[section->sh_offset + section->sh_size - 1] == '\0';
}

static size_t entry_size(const Elf64_Shdr *section) {
    switch (section->sh_type) {
    case SHT_SYMTAB:
        return sizeof(Elf64_Sym);
    case SHT_REL:
        return sizeof(Elf64_Rel);
    case SHT_RELA:
        return sizeof(Elf64_Rela);
    }
    return 0;
}

static const char *check_header(const struct elf_file *elf) {
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)elf->bytes;
    if (elf->size < sizeof(*header) || memcmp(header->e_ident, ELFMAG, SELFMAG))
        return "not an ELF file";
    if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB)
        return "not a 64-bit little-endian ELF file";
    if (header->e_machine != EM_BPF && header->e_machine != EM_NONE)
        return "made for another machine than BPF";
    if (header->e_type != ET_REL)
        return "not a relocatable object";
    if (header->e_shentsize != sizeof(Elf64_Shdr) || !header->e_shnum || header->e_shoff % 8)
        return "its section table is of an unknown form";
    if (!is_inside(elf, header->e_shoff, (Elf64_Xword)header->e_shnum * sizeof(Elf64_Shdr)))
        return "its section table lies beyond its end";
    return header->e_shstrndx < header->e_shnum ? NULL : "it names no table of section names";
}

static const char *check_section(const struct elf_file *elf, const Elf64_Shdr *section) {
    if (section->sh_type != SHT_NOBITS && !is_inside(elf, section->sh_offset, section->sh_size))
        return "a section lies beyond its end";
    size_t entry = entry_size(section);
    if (!entry)
        return NULL;
    if (section->sh_entsize != entry || section->sh_size % entry || section->sh_offset % 8)
        return "a table of symbols or relocations is of an unknown form";
    return section->sh_link < elf->section_count ? NULL : "a table is linked to a section that is not there";
}

static const char *check_sections(struct elf_file *elf) {
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)elf->bytes;
    elf->sections = (const Elf64_Shdr *)(elf->bytes + header->e_shoff);
    elf->section_count = header->e_shnum;
    for (size_t i = 0; i < elf->section_count; i++) {
        const char *wrong = check_section(elf, &elf->sections[i]);
        if (wrong)
            return wrong;
    }
    const Elf64_Shdr *names = &elf->sections[header->e_shstrndx];
    if (!is_string_table(elf, names))
        return "its table of section names is none";
    elf->section_names = (const char *)elf->bytes + names->sh_offset;
    for (size_t i = 0; i < elf->section_count; i++)
        if (elf->sections[i].sh_name >= names->sh_size)
            return "a section's name lies outside the table of names";
    return NULL;
}

static const char *check_symbols(struct elf_file *elf, const Elf64_Shdr *table) {
    const Elf64_Shdr *names = &elf->sections[table->sh_link];
    if (!is_string_table(elf, names))
        return "its table of symbol names is none";
    elf->symbols = (const Elf64_Sym *)(elf->bytes + table->sh_offset);
    elf->symbol_count = table->sh_size / sizeof(Elf64_Sym);
    elf->symbol_names = (const char *)elf->bytes + names->sh_offset;
    for (size_t i = 0; i < elf->symbol_count; i++) {
        const Elf64_Sym *symbol = &elf->symbols[i];
        if (symbol->st_name >= names->sh_size)
            return "a symbol's name lies outside the table of names";
        if (symbol->st_shndx < SHN_LORESERVE && symbol->st_shndx >= elf->section_count)
            return "a symbol lies in a section that is not there";
    }
    return NULL;
}

const char *elf_open(struct elf_file *elf, const void *bytes, size_t size) {
    memset(elf, 0, sizeof(*elf));
    elf->bytes = bytes;
    elf->size = size;
    const char *wrong = check_header(elf);
    if (!wrong)
        wrong = check_sections(elf);
    for (size_t i = 0; !wrong && i < elf->section_count; i++)
        if (elf->sections[i].sh_type == SHT_SYMTAB)
            wrong = elf->symbols ? "it has two tables of symbols" : check_symbols(elf, &elf->sections[i]);
    return wrong;
}

const char *elf_section_name(const struct elf_file *elf, size_t index) {
    return elf->section_names + elf->sections[index].sh_name;
}

const char *elf_symbol_name(const struct elf_file *elf, const Elf64_Sym *symbol) {
    return elf->symbol_names + symbol->st_name;
}

const void *elf_section_bytes(const struct elf_file *elf, size_t index) {
    const Elf64_Shdr *section = &elf->sections[index];
    return section->sh_type == SHT_NOBITS ? NULL : elf->bytes + section->sh_offset;
}

size_t elf_find_section(const struct elf_file *elf, const char *name) {
    for (size_t i = 1; i < elf->section_count; i++)
        if (!strcmp(elf_section_name(elf, i), name))
            return i;
    return 0;
}

bool elf_is_code(const struct elf_file *elf, size_t index) {
    const Elf64_Shdr *section = &elf->sections[index];
    return section->sh_type == SHT_PROGBITS && section->sh_flags & SHF_EXECINSTR &&
           section->sh_size >= sizeof(struct bpf_insn) && section->sh_size % sizeof(struct bpf_insn) == 0;
}

size_t elf_relocations_of(const struct elf_file *elf, size_t target) {
    for (size_t i = 1; i < elf->section_count; i++) {
        const Elf64_Shdr *section = &elf->sections[i];
        if ((section->sh_type == SHT_REL || section->sh_type == SHT_RELA) && section->sh_info == target)
            return i;
    }
    return 0;
}
