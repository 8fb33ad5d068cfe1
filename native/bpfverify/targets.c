// SPDX-License-Identifier: Apache-2.0
#include "targets.h"
#include "map_entries.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#define MOST_TARGETS 64

struct target {
    char object[128], section[128]; // patterns: whose target it is
    char path[512], program[128], function[128];
    int fd;
};

static struct target targets[MOST_TARGETS];
static size_t target_count;
static char complaint[1024];

static const char *read_line(const char *line) {
    struct target target = {.fd = -1};
    int fields = sscanf(line, "%127s %127s %511s %127s %127s", target.object, target.section, target.path,
                        target.program, target.function);
    if (fields <= 0 || target.object[0] == '#')
        return NULL;
    if (fields < 5)
        return "a rule is OBJECT-PATTERN SECTION-PATTERN TARGET-OBJECT PROGRAM FUNCTION";
    if (target_count == MOST_TARGETS)
        return "there are more rules than fit";
    targets[target_count++] = target;
    return NULL;
}

const char *targets_read(const char *path) {
    char line[1200];
    FILE *file = fopen(path, "r");
    if (!file)
        return strerror(errno);
    const char *wrong = NULL;
    for (int number = 1; !wrong && fgets(line, sizeof(line), file); number++) {
        wrong = read_line(line);
        if (wrong)
            snprintf(complaint, sizeof(complaint), "line %d: %s", number, wrong);
    }
    fclose(file);
    return wrong ? complaint : NULL;
}

static struct target *target_of(const char *object_path, const char *section) {
    const char *slash = strrchr(object_path, '/'); // the folder says nothing about the object
    const char *object = slash ? slash + 1 : object_path;
    for (size_t i = 0; i < target_count; i++)
        if (!fnmatch(targets[i].object, object, 0) && !fnmatch(targets[i].section, section, 0))
            return &targets[i];
    return NULL;
}

static const char *complain(const struct target *target, const char *what, int error) {
    snprintf(complaint, sizeof(complaint), "attach target of --targets: %s %s: %s", target->path, what,
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
    struct bpf_object *object = bpf_object__open(target->path);
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
