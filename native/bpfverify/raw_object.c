// SPDX-License-Identifier: Apache-2.0
#include "raw_object.h"

#include <stdlib.h>
#include <string.h>

#define MOST_PROGRAMS 4096
#define IS_WIDE_LOAD(insn) ((insn)->code == (BPF_LD | BPF_IMM | BPF_DW))
#define IS_LOCAL_CALL(insn) ((insn)->code == (BPF_JMP | BPF_CALL) && (insn)->src_reg == BPF_PSEUDO_CALL)

#define MOST_CHUNKS 1024
#define MOST_INSNS (1u << 20)

struct chunk { // a function's instructions: `from` of its section, `at` of the program
    size_t section, from, count, at;
};

// A program being put together: its own function, then each function of .text that it calls, once.
struct assembly {
    const struct elf_file *elf;
    const struct raw_object *object;
    struct raw_program *program;
    size_t text;
    bool *is_placed; // calls that are already right
    size_t chunk_count;
    struct chunk chunks[MOST_CHUNKS];
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

static const char *fix_load(struct assembly *assembly, size_t at, const struct relocation *relocation) {
    struct raw_program *program = assembly->program;
    struct bpf_insn *insn = &program->insns[at];
    const Elf64_Sym *symbol = relocation->symbol;
    if (insn->src_reg)
        return "an instruction is relocated twice";
    if (at + 1 >= program->count)
        return "a wide load ends its program";
    if (symbol->st_shndx == SHN_UNDEF)
        return "it uses a symbol from outside the object";
    size_t offset =
        symbol->st_value + (relocation->addend ? (size_t)relocation->addend : (unsigned)insn->imm);
    long map = raw_map_find(assembly->object, symbol->st_shndx, offset);
    if (map < 0)
        return "it loads the address of something that is neither a legacy map nor data";
    bool data = assembly->object->maps[map].is_data;
    insn->src_reg = data ? BPF_PSEUDO_MAP_VALUE : BPF_PSEUDO_MAP_FD;
    insn->imm = 0;
    insn[1].imm = data ? (int)offset : 0;
    program->fixes[program->fix_count++] = (struct raw_fix){.insn = at, .map = map};
    return NULL;
}

static bool grow(struct assembly *assembly, size_t more) {
    struct raw_program *program = assembly->program;
    size_t count = program->count + more;
    void *insns = realloc(program->insns, count * sizeof(*program->insns));
    if (insns)
        program->insns = insns;
    void *fixes = realloc(program->fixes, count * sizeof(*program->fixes));
    if (fixes)
        program->fixes = fixes;
    void *placed = realloc(assembly->is_placed, count * sizeof(*assembly->is_placed));
    if (placed)
        assembly->is_placed = placed;
    return insns && fixes && placed;
}

static const char *append(struct assembly *assembly, size_t section, size_t from, size_t count) {
    struct raw_program *program = assembly->program;
    if (assembly->chunk_count == MOST_CHUNKS || program->count + count > MOST_INSNS)
        return "it is larger than a program can be";
    if (!grow(assembly, count))
        return "there is no memory";
    const unsigned char *bytes = elf_section_bytes(assembly->elf, section); // perhaps not aligned
    size_t width = sizeof(struct bpf_insn);
    memcpy(program->insns + program->count, bytes + from * width, count * width);
    memset(assembly->is_placed + program->count, 0, count * sizeof(*assembly->is_placed));
    assembly->chunks[assembly->chunk_count++] = (struct chunk){section, from, count, program->count};
    program->count += count;
    return NULL;
}

static size_t function_end(const struct elf_file *elf, size_t section, size_t from) {
    size_t end = elf->sections[section].sh_size / sizeof(struct bpf_insn);
    for (size_t i = 0; i < elf->symbol_count; i++) {
        const Elf64_Sym *symbol = &elf->symbols[i];
        size_t start = symbol->st_value / sizeof(struct bpf_insn);
        if (symbol->st_shndx == section && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC && start > from &&
            start < end)
            end = start;
    }
    return end;
}

// Where the instruction `target` of a section lies in the program; a function of .text is appended when first
// called.
static const char *place_of(struct assembly *assembly, size_t section, long long target, size_t *place) {
    for (size_t i = 0; i < assembly->chunk_count; i++) {
        const struct chunk *chunk = &assembly->chunks[i];
        if (chunk->section == section && target >= (long long)chunk->from &&
            (size_t)target < chunk->from + chunk->count) {
            *place = chunk->at + target - chunk->from;
            return NULL;
        }
    }
    if (!assembly->text || section != assembly->text)
        return "it calls a function that is neither its own nor of .text";
    if (target < 0 || (size_t)target >= assembly->elf->sections[section].sh_size / sizeof(struct bpf_insn))
        return "it calls a function beyond its section";
    *place = assembly->program->count;
    return append(assembly, section, target, function_end(assembly->elf, section, target) - target);
}

// A call's immediate counts from the instruction after it; in the object, from the beginning of the symbol's
// section.
static const char *fix_call(struct assembly *assembly, size_t at, size_t section, long long target) {
    size_t place = 0;
    if (section == SHN_UNDEF)
        return "it calls a function from outside the object";
    const char *wrong = place_of(assembly, section, target, &place);
    if (wrong)
        return wrong;
    assembly->program->insns[at].imm = (int)((long long)place - (long long)at - 1);
    assembly->is_placed[at] = true;
    return NULL;
}

static const char *fix(struct assembly *assembly, size_t at, const struct relocation *relocation) {
    const struct bpf_insn *insn = &assembly->program->insns[at];
    if (IS_WIDE_LOAD(insn))
        return fix_load(assembly, at, relocation);
    if (!IS_LOCAL_CALL(insn))
        return "it relocates an instruction that is neither a wide load nor a call";
    size_t start = (relocation->symbol->st_value + relocation->addend) / sizeof(*insn);
    return fix_call(assembly, at, relocation->symbol->st_shndx, (long long)start + insn->imm + 1);
}

static const char *relocate(struct assembly *assembly, struct chunk chunk) {
    const struct elf_file *elf = assembly->elf;
    size_t table = elf_relocations_of(elf, chunk.section);
    size_t entries = table ? elf->sections[table].sh_size / elf->sections[table].sh_entsize : 0;
    for (size_t i = 0; i < entries; i++) {
        struct relocation relocation = {0};
        const char *wrong = read_relocation(elf, table, i, &relocation);
        if (!wrong && relocation.insn >= chunk.from && relocation.insn < chunk.from + chunk.count)
            wrong = fix(assembly, chunk.at + relocation.insn - chunk.from, &relocation);
        if (wrong)
            return wrong;
    }
    return NULL;
}

// Calls within .text have no relocation: their distance is right in the section, but not in the program.
static const char *place_calls(struct assembly *assembly, struct chunk chunk) {
    for (size_t i = 0; i < chunk.count; i++) {
        const struct bpf_insn *insn = &assembly->program->insns[chunk.at + i];
        if (!IS_LOCAL_CALL(insn) || assembly->is_placed[chunk.at + i])
            continue;
        long long target = (long long)(chunk.from + i) + insn->imm + 1;
        const char *wrong = fix_call(assembly, chunk.at + i, chunk.section, target);
        if (wrong)
            return wrong;
    }
    return NULL;
}

static const char *assemble(struct assembly *assembly, size_t section, size_t from, size_t count) {
    const char *wrong = append(assembly, section, from, count);
    for (size_t i = 0; !wrong && i < assembly->chunk_count; i++) { // grows as functions are called
        wrong = relocate(assembly, assembly->chunks[i]);
        if (!wrong)
            wrong = place_calls(assembly, assembly->chunks[i]);
    }
    free(assembly->is_placed);
    return wrong;
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
        static struct assembly assembly;
        assembly = (struct assembly){.elf = elf, .object = object, .program = program, .text = text};
        const size_t width = sizeof(struct bpf_insn);
        program->wrong = assemble(&assembly, section, offset / width, (end - offset) / width);
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
