// SPDX-License-Identifier: Apache-2.0
#include "targets.h"
#include "map_entries.h"
#include "rule_table.h"

#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define MOST_TARGETS 64

struct target {
    char object[RULE_WORD], section[RULE_WORD]; // patterns: whose target it is
    char name[RULE_WORD], program[RULE_WORD], function[RULE_WORD];
    const char *table; // its name is relative to this file's folder
    int fd;
};

static struct target targets[MOST_TARGETS];
static size_t target_count;
static const char *table_path;
static char complaint[512];

static const char *take_rule(char *const *words) {
    struct target *target = &targets[target_count];
    if (target_count == MOST_TARGETS)
        return "there are more rules than fit";
    *target = (struct target){.table = table_path, .fd = -1};
    char *const into[] = {target->object, target->section, target->name, target->program, target->function};
    for (size_t i = 0; i < sizeof(into) / sizeof(into[0]); i++)
        strcpy(into[i], words[i]);
    target_count++;
    return NULL;
}

const char *targets_read(const char *path) {
    table_path = path;
    return rule_table_read(path, "OBJECT-PATTERN SECTION-PATTERN TARGET-OBJECT PROGRAM FUNCTION", take_rule);
}

static struct target *target_of(const char *object_path, const char *section) {
    for (size_t i = 0; i < target_count; i++)
        if (rule_is_for(targets[i].object, object_path) && !fnmatch(targets[i].section, section, 0))
            return &targets[i];
    return NULL;
}

static const char *complain(const struct target *target, const char *what, int error) {
    snprintf(complaint, sizeof(complaint), "attach target of --targets: %s %s: %s", target->name, what,
             strerror(error < 0 ? -error : error));
    return complaint;
}

static void prepare(struct bpf_object *object, const struct bpf_program *wanted) {
    struct bpf_program *program;
    struct bpf_map *map;
    bpf_object__for_each_program(program, object) bpf_program__set_autoload(program, program == wanted);
    bpf_object__for_each_map(map, object) {
        bpf_map__set_pin_path(map, NULL);
        bpf_map__set_max_entries(map, map_entries(bpf_map__type(map), bpf_map__max_entries(map)));
    }
}

// The object stays open: its program lives as long as this process.
static const char *load(struct target *target) {
    char path[PATH_MAX];
    const char *slash = target->name[0] == '/' ? NULL : strrchr(target->table, '/');
    int folder = slash ? (int)(slash - target->table) + 1 : 0;
    snprintf(path, sizeof(path), "%.*s%s", folder, target->table, target->name);
    struct bpf_object *object = bpf_object__open(path);
    if (!object)
        return complain(target, "cannot be opened", errno);
    struct bpf_program *program = bpf_object__find_program_by_name(object, target->program);
    if (!program) {
        bpf_object__close(object);
        return complain(target, target->program, ENOENT);
    }
    prepare(object, program);
    int error = bpf_object__load(object);
    if (error) {
        bpf_object__close(object);
        return complain(target, "cannot be loaded", error);
    }
    target->fd = bpf_program__fd(program);
    return NULL;
}

const char *targets_set(struct bpf_program *program, const char *object_path) {
    struct target *target = target_of(object_path, bpf_program__section_name(program));
    const char *wrong = target && target->fd < 0 ? load(target) : NULL;
    if (!target || wrong)
        return wrong;
    int error = bpf_program__set_attach_target(program, target->fd, target->function);
    return error ? complain(target, target->function, error) : NULL;
}
