// SPDX-License-Identifier: Apache-2.0
#include "own.h"
#include "bpf_image.h"
#include "fail.h"
#include "module_file.h"
#include "options.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

extern char **environ;

static void print_loaded(struct image image) {
    printf("{\"type\":\"loaded\",\"backend\":\"%s\",", options.backend);
    print_image(image);
}

static void print_time(unsigned int index, unsigned long long time) {
    printf("{\"type\":\"call\",\"index\":%u,\"elapsed_ns\":%llu}\n", index, time);
}

/* Its standard output goes where our messages go: ours are the JSON lines. */
static void trigger(void) {
    posix_spawn_file_actions_t actions;
    int status = 0;
    pid_t process;

    fflush(stdout);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, 2, 1);
    if (!options.event[0])
        fail(0, "there is no command that triggers the event");
    errno = posix_spawnp(&process, options.event[0], &actions, NULL, options.event, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (errno || waitpid(process, &status, 0) < 0)
        fail(errno, "starting %s", options.event[0]);
    if (status)
        fail(0, "%s ended with exit code %d", options.event[0], WEXITSTATUS(status));
}

/* An array of 64-bit times, in the order in which they were taken; 0 is an entry not yet written. */
static unsigned int print_map(const struct bpf_map *map) {
    unsigned int count = 0;

    for (__u32 key = 0; key < bpf_map__max_entries(map); key++) {
        __u64 time = 0;

        if (bpf_map_lookup_elem(bpf_map__fd(map), &key, &time))
            fail(errno, "reading map %s", options.map);
        if (time)
            print_time(count++, time);
    }
    return count;
}

static unsigned int own_bpf(void) {
    struct bpf_object *object = bpf_image_open(options.object);
    struct bpf_program *program, *first = bpf_object__next_program(object, NULL);
    const struct bpf_map *map = options.map ? bpf_object__find_map_by_name(object, options.map) : NULL;

    if (!first || !map || bpf_map__type(map) != BPF_MAP_TYPE_ARRAY ||
        bpf_map__value_size(map) != sizeof(__u64))
        fail(0, "%s: it has no program, or no array `%s` of 64-bit values", options.object, options.map);
    if (bpf_object__load(object))
        bpf_image_refused(options.object, errno);
    bpf_object__for_each_program(program, object) {
        if (!bpf_program__attach(program))
            fail(errno, "attaching %s of %s", bpf_program__name(program), options.object);
    }
    print_loaded(bpf_image_of(bpf_program__fd(first)));
    trigger();
    return print_map(map); // its programs go with this process
}

/* A text of whole numbers, one a line or divided by blanks. */
static unsigned int print_file(void) {
    FILE *file = fopen(options.file, "r");
    unsigned long long time;
    unsigned int count = 0;
    int found;

    if (!file)
        fail(errno, "reading %s", options.file);
    while ((found = fscanf(file, "%llu", &time)) == 1)
        print_time(count++, time);
    if (found != EOF)
        fail(0, "%s: entry %u is no whole number", options.file, count);
    fclose(file);
    return count;
}

static unsigned int own_module(void) {
    unsigned int count;

    if (!options.file)
        fail(0, "a module needs --file, where the times are read");
    module_insert(options.object);
    print_loaded((struct image){});
    trigger();
    count = print_file();
    module_remove(options.object);
    return count;
}

void own_run(void) {
    unsigned int count = strcmp(options.backend, "own-module") ? own_bpf() : own_module();

    if (!count)
        fail(0, "%s: no time was written while %s ran", options.object, options.event[0]);
    printf("{\"type\":\"end\",\"calls\":%u}\n", count);
}
