// SPDX-License-Identifier: Apache-2.0
#include "raw_object.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MOST_MAPS 1024

// Words of a legacy definition. Their number differs by project and age; what is absent counts as 0.
enum { TYPE, KEY_SIZE, VALUE_SIZE, MAX_ENTRIES, FLAGS, WORDS_COMMON, LEAST_WORDS = FLAGS };
enum { SAMPLES_INNER = 5, SAMPLES_WORDS = 7 };                                   // kernel's samples/bpf
enum { IPROUTE2_ID = 5, IPROUTE2_INNER_ID = 7, IPROUTE2_INNER, IPROUTE2_WORDS }; // iproute2's bpf_elf_map

static bool holds_maps(const char *section) {
    return !strcmp(section, "maps") || !strncmp(section, "maps/", 5);
}

static bool is_data(const struct elf_file *elf, size_t index) {
    const Elf64_Shdr *section = &elf->sections[index];
    const char *name = elf_section_name(elf, index);
    return section->sh_size && section->sh_size <= UINT32_MAX && section->sh_flags & SHF_ALLOC &&
           (section->sh_type == SHT_PROGBITS || section->sh_type == SHT_NOBITS) &&
           (!strncmp(name, ".rodata", 7) || !strncmp(name, ".data", 5) || !strncmp(name, ".bss", 4));
}

static struct raw_map *add_map(struct raw_object *object, const char *name, size_t section, size_t offset) {
    if (object->map_count == MOST_MAPS)
        return NULL;
    struct raw_map *map = &object->maps[object->map_count++];
    *map = (struct raw_map){.name = name, .section = section, .offset = offset, .inner = -1, .fd = -1};
    return map;
}

// Where the definition at `offset` ends: at the next one's symbol, or with its section.
static size_t definition_end(const struct elf_file *elf, size_t section, size_t offset) {
    size_t end = elf->sections[section].sh_size;
    for (size_t i = 0; i < elf->symbol_count; i++) {
        const Elf64_Sym *symbol = &elf->symbols[i];
        if (symbol->st_shndx == section && symbol->st_value > offset && symbol->st_value < end)
            end = symbol->st_value;
    }
    return end;
}

static const char *define(struct raw_map *map, const struct elf_file *elf, size_t size) {
    uint32_t words[IPROUTE2_WORDS] = {0};
    size_t count = size / sizeof(words[0]);
    if (count < LEAST_WORDS)
        return "a map definition is too short";
    const unsigned char *bytes = elf_section_bytes(elf, map->section);
    memcpy(words, bytes + map->offset, sizeof(words[0]) * (count < IPROUTE2_WORDS ? count : IPROUTE2_WORDS));
    map->type = words[TYPE];
    map->key_size = words[KEY_SIZE];
    map->value_size = words[VALUE_SIZE];
    map->max_entries = words[MAX_ENTRIES];
    map->flags = words[FLAGS];
    bool of_maps = map->type == BPF_MAP_TYPE_ARRAY_OF_MAPS || map->type == BPF_MAP_TYPE_HASH_OF_MAPS;
    if (of_maps)
        map->value_size = sizeof(uint32_t); // old loaders filled in what the kernel wants
    if (count == IPROUTE2_WORDS) {
        map->id = words[IPROUTE2_ID];
        map->inner = of_maps ? -2 - (int)(words[IPROUTE2_INNER_ID] & 0xffff) : -1; // found once all are read
    } else if (of_maps && count >= SAMPLES_WORDS - 1) {
        map->inner = words[SAMPLES_INNER] & 0xffff;
    }
    return NULL;
}

static const char *read_definitions(struct raw_object *object, const struct elf_file *elf, size_t section) {
    const char *wrong = NULL;
    for (size_t i = 0; !wrong && i < elf->symbol_count; i++) {
        const Elf64_Sym *symbol = &elf->symbols[i];
        if (symbol->st_shndx != section || ELF64_ST_TYPE(symbol->st_info) == STT_SECTION)
            continue;
        if (raw_map_find(object, section, symbol->st_value) >= 0)
            continue; // a second name of the same map
        size_t end = definition_end(elf, section, symbol->st_value);
        if (symbol->st_value >= end)
            return "a map's symbol lies beyond its section";
        struct raw_map *map = add_map(object, elf_symbol_name(elf, symbol), section, symbol->st_value);
        wrong = map ? define(map, elf, end - symbol->st_value) : "it has too many maps";
    }
    return wrong;
}

static int by_offset(const void *left, const void *right) {
    const struct raw_map *a = left, *b = right;
    if (a->section != b->section)
        return a->section < b->section ? -1 : 1;
    return (a->offset > b->offset) - (a->offset < b->offset);
}

static int map_with_id(const struct raw_object *object, unsigned id) {
    for (size_t i = 0; i < object->map_count; i++)
        if (object->maps[i].id == id)
            return i;
    return -1;
}

// A map of maps names its inner map by iproute2's id or by the rank of its definition.
static const char *find_inner(struct raw_object *object) {
    for (size_t i = 0; i < object->map_count; i++) {
        struct raw_map *map = &object->maps[i];
        bool of_maps = map->type == BPF_MAP_TYPE_ARRAY_OF_MAPS || map->type == BPF_MAP_TYPE_HASH_OF_MAPS;
        if (map->inner < -1)
            map->inner = map_with_id(object, -2 - map->inner);
        if (of_maps && (map->inner < 0 || (size_t)map->inner >= object->map_count || (size_t)map->inner == i))
            return "a map of maps names no inner map";
    }
    return NULL;
}

static void add_data(struct raw_object *object, const struct elf_file *elf, size_t section) {
    struct raw_map *map = add_map(object, elf_section_name(elf, section), section, 0);
    if (!map)
        return;
    map->type = BPF_MAP_TYPE_ARRAY;
    map->key_size = 4;
    map->value_size = elf->sections[section].sh_size;
    map->max_entries = 1;
    map->is_data = true;
    map->contents = elf_section_bytes(elf, section);
}

const char *raw_maps_read(struct raw_object *object, const struct elf_file *elf) {
    const char *wrong = NULL;
    object->maps = calloc(MOST_MAPS, sizeof(*object->maps));
    if (!object->maps)
        return "there is no memory";
    for (size_t i = 1; !wrong && i < elf->section_count; i++)
        if (holds_maps(elf_section_name(elf, i)) && elf->sections[i].sh_type == SHT_PROGBITS)
            wrong = read_definitions(object, elf, i);
    qsort(object->maps, object->map_count, sizeof(*object->maps), by_offset);
    if (!wrong)
        wrong = find_inner(object);
    for (size_t i = 1; !wrong && i < elf->section_count; i++)
        if (is_data(elf, i))
            add_data(object, elf, i);
    return wrong;
}

long raw_map_find(const struct raw_object *object, size_t section, size_t offset) {
    for (size_t i = 0; i < object->map_count; i++) {
        const struct raw_map *map = &object->maps[i];
        if (map->section == section && (map->is_data || map->offset == offset))
            return i;
    }
    return -1;
}
