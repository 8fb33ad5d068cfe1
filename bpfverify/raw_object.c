// SPDX-License-Identifier: Apache-2.0
#include "raw_object.h"

#include <stdlib.h>
#include <string.h>

#define MOST_PROGRAMS 4096
#define IS_WIDE_LOAD(insn) ((insn)->code == (BPF_LD | BPF_IMM | BPF_DW))
#define IS_LOCAL_CALL(insn) ((insn)->code == (BPF_JMP | BPF_CALL) && (insn)->src_reg == BPF_PSEUDO_CALL)

// A section's code on its way into a program: [from, from + own) of the section, then all of .text.
struct span {
    const struct elf_file *elf;
    const struct raw_object *object;
    struct raw_program *program;
    size_t section, text;
    size_t from, own; // instructions
    size_t at;        // where this section's instructions lie in the program
};

struct relocation {
    size_t insn; // within its section
    const Elf64_Sym *symbol;
    long long addend; // 0 where the instruction holds it
};

static const char *read_relocation(const struct elf_file *elf, size_t table, size_t rank,
                                   struct relocation *found) {
    const Elf64_Shdr *section = &elf->sections[table];
    const unsigned char *entry = elf->bytes + section->sh_offset + rank * section->sh_entsize;
    Elf64_Rela value = {0};
    memcpy(&value, entry, section->sh_entsize); // Elf64_Rel is the beginning of Elf64_Rela
    size_t index = ELF64_R_SYM(value.r_info);
    if (index >= elf->symbol_count || value.r_offset % sizeof(struct bpf_insn))
        return "a relocation names no symbol or no instruction";
    found->insn = value.r_offset / sizeof(struct bpf_insn);
    found->symbol = &elf->symbols[index];
    found->addend = value.r_addend;
    return NULL;
}

static const char *fix_load(struct span *span, size_t at, const struct relocation *relocation) {
    struct raw_program *program = span->program;
    struct bpf_insn *insn = &program->insns[at];
    const Elf64_Sym *symbol = relocation->symbol;
    if (at + 1 >= program->count)
        return "a wide load ends its program";
    if (symbol->st_shndx == SHN_UNDEF)
        return "it uses a symbol from outside the object";
    size_t offset =
        symbol->st_value + relocation->addend + (relocation->addend ? 0 : (unsigned int)insn->imm);
    long map = raw_map_find(span->object, symbol->st_shndx, offset);
    if (map < 0)
        return "it loads the address of something that is neither a legacy map nor data";
    bool data = span->object->maps[map].is_data;
    insn->src_reg = data ? BPF_PSEUDO_MAP_VALUE : BPF_PSEUDO_MAP_FD;
    insn->imm = 0;
    insn[1].imm = data ? (int)offset : 0;
    program->fixes[program->fix_count++] = (struct raw_fix){.insn = at, .map = map};
    return NULL;
}

// A call's immediate counts from the instruction after it; in the object, from the beginning of the symbol's
// section.
static const char *fix_call(struct span *span, size_t at, const struct relocation *relocation) {
    struct raw_program *program = span->program;
    struct bpf_insn *insn = &program->insns[at];
    const Elf64_Sym *symbol = relocation->symbol;
    long long target = (long long)((symbol->st_value + relocation->addend) / sizeof(*insn)) + insn->imm + 1;
    long long place;
    if (symbol->st_shndx == SHN_UNDEF)
        return "it calls a function from outside the object";
    if (span->text && symbol->st_shndx == span->text)
        place = (long long)span->own + target;
    else if (symbol->st_shndx == span->section)
        place = target - (long long)span->from;
    else
        return "it calls a function of another section than .text";
    if (place < 0 || (size_t)place >= program->count)
        return "it calls a function outside its program";
    insn->imm = (int)(place - (long long)at - 1);
    return NULL;
}

static const char *relocate(struct span *span, size_t section, size_t from, size_t count) {
    size_t table = elf_relocations_of(span->elf, section);
    size_t entries = table ? span->elf->sections[table].sh_size / span->elf->sections[table].sh_entsize : 0;
    for (size_t i = 0; i < entries; i++) {
        struct relocation relocation = {0};
        const char *wrong = read_relocation(span->elf, table, i, &relocation);
        if (wrong)
            return wrong;
        if (relocation.insn < from || relocation.insn >= from + count)
            continue; // another program of the section
        size_t at = span->at + relocation.insn - from;
        struct bpf_insn *insn = &span->program->insns[at];
        if (IS_WIDE_LOAD(insn))
            wrong = insn->src_reg ? "an instruction is relocated twice" : fix_load(span, at, &relocation);
        else if (IS_LOCAL_CALL(insn))
            wrong = fix_call(span, at, &relocation);
        else
            wrong = "it relocates an instruction that is neither a wide load nor a call";
        if (wrong)
            return wrong;
    }
    return NULL;
}

static bool calls_text(const struct span *span) {
    size_t table = elf_relocations_of(span->elf, span->section);
    size_t entries = table ? span->elf->sections[table].sh_size / span->elf->sections[table].sh_entsize : 0;
    for (size_t i = 0; i < entries; i++) {
        struct relocation relocation = {0};
        if (!read_relocation(span->elf, table, i, &relocation) && relocation.symbol->st_shndx == span->text)
            return true;
    }
    return false;
}

static const char *fill(struct span *span) {
    struct raw_program *program = span->program;
    const unsigned char *own = elf_section_bytes(span->elf, span->section); // perhaps not aligned
    const size_t width = sizeof(struct bpf_insn);
    size_t text = 0;
    if (span->text && calls_text(span))
        text = span->elf->sections[span->text].sh_size / width;
    else
        span->text = 0;
    program->count = span->own + text;
    program->insns = calloc(program->count, width);
    program->fixes = calloc(program->count, sizeof(*program->fixes));
    if (!program->insns || !program->fixes)
        return "there is no memory";
    memcpy(program->insns, own + span->from * width, span->own * width);
    if (text)
        memcpy(program->insns + span->own, elf_section_bytes(span->elf, span->text), text * width);
    const char *wrong = relocate(span, span->section, span->from, span->own);
    span->at = span->own;
    return wrong || !text ? wrong : relocate(span, span->text, 0, text);
}

static bool begins_program(const struct elf_file *elf, const Elf64_Sym *symbol, size_t section) {
    return symbol->st_shndx == section && ELF64_ST_TYPE(symbol->st_info) != STT_SECTION &&
           ELF64_ST_BIND(symbol->st_info) == STB_GLOBAL &&
           symbol->st_value < elf->sections[section].sh_size &&
           symbol->st_value % sizeof(struct bpf_insn) == 0;
}

static size_t next_beginning(const struct elf_file *elf, size_t section, size_t offset) {
    size_t end = elf->sections[section].sh_size;
    for (size_t i = 0; i < elf->symbol_count; i++) {
        const Elf64_Sym *symbol = &elf->symbols[i];
        if (begins_program(elf, symbol, section) && symbol->st_value > offset && symbol->st_value < end)
            end = symbol->st_value;
    }
    return end;
}

static const char *name_at(const struct elf_file *elf, size_t section, size_t offset) {
    for (size_t i = 0; i < elf->symbol_count; i++)
        if (begins_program(elf, &elf->symbols[i], section) && elf->symbols[i].st_value == offset)
            return elf_symbol_name(elf, &elf->symbols[i]);
    return elf_section_name(elf, section);
}

static void read_section(struct raw_object *object, const struct elf_file *elf, size_t section, size_t text) {
    size_t size = elf->sections[section].sh_size, end;
    for (size_t offset = 0; offset < size && object->program_count < MOST_PROGRAMS; offset = end) {
        end = next_beginning(elf, section, offset);
        struct raw_program *program = &object->programs[object->program_count++];
        program->name = name_at(elf, section, offset);
        program->section = elf_section_name(elf, section);
        struct span span = {
            .elf = elf,
            .object = object,
            .program = program,
            .section = section,
            .text = text,
            .from = offset / sizeof(struct bpf_insn),
            .own = (end - offset) / sizeof(struct bpf_insn),
        };
        program->wrong = fill(&span);
    }
}

static const char *license_of(const struct elf_file *elf) {
    size_t section = elf_find_section(elf, "license");
    const char *text = section ? elf_section_bytes(elf, section) : NULL;
    return text && memchr(text, '\0', elf->sections[section].sh_size) ? text : "";
}

const char *raw_object_read(struct raw_object *object, const struct elf_file *elf) {
    memset(object, 0, sizeof(*object));
    const char *wrong = raw_maps_read(object, elf);
    if (wrong)
        return wrong;
    object->license = license_of(elf);
    object->programs = calloc(MOST_PROGRAMS, sizeof(*object->programs));
    if (!object->programs)
        return "there is no memory";
    size_t text = elf_find_section(elf, ".text");
    text = text && elf_is_code(elf, text) ? text : 0;
    for (size_t i = 1; i < elf->section_count; i++)
        if (elf_is_code(elf, i) && i != text)
            read_section(object, elf, i, text);
    return object->program_count ? NULL : "it holds no program";
}

void raw_object_free(struct raw_object *object) {
    for (size_t i = 0; object->programs && i < object->program_count; i++) {
        free(object->programs[i].insns);
        free(object->programs[i].fixes);
    }
    free(object->programs);
    free(object->maps);
    memset(object, 0, sizeof(*object));
}
