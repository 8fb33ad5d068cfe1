// SPDX-License-Identifier: Apache-2.0
#include "raw_load.h"
#include "map_entries.h"
#include "measure.h"
#include "program_types.h"
#include "raw_object.h"
#include "record.h"
#include "verdict.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int create_map(const struct raw_map *map, int inner_fd) {
    LIBBPF_OPTS(bpf_map_create_opts, options, .map_flags = map->flags);
    if (inner_fd >= 0)
        options.inner_map_fd = inner_fd;
    return bpf_map_create(map->type, NULL, map->key_size, map->value_size,
                          map_entries(map->type, map->max_entries), &options);
}

static int fill_data(const struct raw_map *map) {
    const unsigned first = 0;
    return map->contents ? bpf_map_update_elem(map->fd, &first, map->contents, BPF_ANY) : 0;
}

// Inner maps first: a map of maps wants one that exists. An inner map is never a map of maps itself.
static const struct raw_map *create_maps(struct raw_object *object) {
    for (int outer = 0; outer < 2; outer++) {
        for (size_t i = 0; i < object->map_count; i++) {
            struct raw_map *map = &object->maps[i];
            if ((map->inner >= 0) != outer)
                continue;
            map->fd = create_map(map, outer ? object->maps[map->inner].fd : -1);
            if (map->fd < 0 || fill_data(map))
                return map;
        }
    }
    return NULL;
}

static void close_maps(struct raw_object *object) {
    for (size_t i = 0; i < object->map_count; i++)
        if (object->maps[i].fd >= 0)
            close(object->maps[i].fd);
}

static void load_program(struct record *record, const struct raw_object *object,
                         const struct raw_program *program, struct program_kind kind) {
    union bpf_attr attributes;
    memset(&attributes, 0, sizeof(attributes));
    for (size_t i = 0; i < program->fix_count; i++)
        program->insns[program->fixes[i].insn].imm = object->maps[program->fixes[i].map].fd;
    attributes.prog_type = kind.type;
    attributes.expected_attach_type = kind.attach;
    attributes.prog_flags = kind.flags;
    attributes.insns = (uintptr_t)program->insns;
    attributes.insn_cnt = program->count;
    attributes.license = (uintptr_t)object->license;
    int fd = measure_load(record, &attributes, sizeof(attributes));
    if (fd >= 0)
        close(fd);
}

static void verify_program(struct record *record, const struct raw_object *object,
                           const struct raw_program *program, const struct raw_map *missing, int map_error,
                           const char *refused) {
    struct program_kind kind = program_kind_of(record->object, program->section);
    record->section = program->section;
    record->name = program->name;
    record->program_type = kind.type;
    if (program->wrong)
        snprintf(record->words, sizeof(record->words), "%.200s (libbpf: %.700s)", program->wrong, refused);
    else if (!kind.type)
        snprintf(record->words, sizeof(record->words), NO_TYPE_WORDS, program->section,
                 libbpf_version_string());
    else if (program_type_has_target(kind.type))
        snprintf(record->words, sizeof(record->words),
                 "only libbpf finds what it attaches to (libbpf: %.700s)", refused);
    else if (missing)
        snprintf(record->words, sizeof(record->words), "map '%.128s' cannot be created: %s", missing->name,
                 strerror(map_error));
    if (record->words[0])
        judge_words(record);
    else
        load_program(record, object, program, kind);
}

const char *raw_load(const char *path, const struct elf_file *elf, const char *refused) {
    static struct record record;
    struct raw_object object;
    const char *wrong = raw_object_read(&object, elf);
    if (!wrong) {
        const struct raw_map *missing = create_maps(&object);
        int map_error = errno;
        for (size_t i = 0; i < object.program_count; i++) {
            record_begin(&record, path, "raw");
            verify_program(&record, &object, &object.programs[i], missing, map_error, refused);
            record_print(&record);
        }
        close_maps(&object);
    }
    raw_object_free(&object);
    return wrong;
}
