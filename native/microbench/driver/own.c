// SPDX-License-Identifier: Apache-2.0
#include "own.h"
#include "bpf_image.h"
#include "fail.h"
#include "json.h"
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
    json_begin("loaded");
    json_string("backend", options.backend);
    print_image(image);
}

static void print_time(unsigned index, unsigned long long time) {
    json_begin("call");
    json_count("index", index);
    json_count("elapsed_ns", time);
    json_end();
}

// Its standard output goes where our messages go: ours are the JSON lines.
static void trigger(void) {
    posix_spawn_file_actions_t actions;
    int status = 0;
    pid_t process;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, 2, 1);
    if (!options.event[0])
        fail("own", 0, NULL, "there is no command that triggers the event");
    errno = posix_spawnp(&process, options.event[0], &actions, NULL, options.event, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (errno || waitpid(process, &status, 0) < 0)
        fail("own", errno, NULL, "starting %s: %s", options.event[0], strerror(errno));
    if (status)
        fail("own", 0, NULL, "%s ended with exit code %d", options.event[0], WEXITSTATUS(status));
}

// An array of 64-bit times, in the order in which they were taken; 0 is an entry not yet written.
static unsigned print_map(const struct bpf_map *map) {
    unsigned count = 0;

    for (uint32_t key = 0; key < bpf_map__max_entries(map); key++) {
        uint64_t time = 0;

        if (bpf_map_lookup_elem(bpf_map__fd(map), &key, &time))
            fail("own", errno, NULL, "reading map %s: %s", options.map, strerror(errno));
        if (time)
            print_time(count++, time);
    }
    return count;
}

static unsigned own_bpf(void) {
    struct bpf_object *object = bpf_image_open(options.object);
    struct bpf_program *program, *first = bpf_object__next_program(object, NULL);
    const struct bpf_map *map = options.map ? bpf_object__find_map_by_name(object, options.map) : NULL;

    if (!first || !map || bpf_map__type(map) != BPF_MAP_TYPE_ARRAY ||
        bpf_map__value_size(map) != sizeof(uint64_t))
        fail("own", 0, NULL, "%s: it has no program, or no array `%s` of 64-bit values", options.object,
             options.map);
    if (bpf_object__load(object))
        bpf_image_refused(options.object, errno);
    bpf_object__for_each_program(program, object) {
        if (!bpf_program__attach(program))
            fail("own", errno, NULL, "attaching %s of %s: %s", bpf_program__name(program), options.object,
                 strerror(errno));
    }
    print_loaded(bpf_image_of(bpf_program__fd(first)));
    trigger();
    return print_map(map); // its programs go with this process
}

// A text of whole numbers, one a line or divided by blanks.
static unsigned print_file(void) {
    FILE *file = fopen(options.file, "r");
    unsigned long long time;
    unsigned count = 0;
    int found;

    if (!file)
        fail("own", errno, NULL, "reading %s: %s", options.file, strerror(errno));
    while ((found = fscanf(file, "%llu", &time)) == 1)
        print_time(count++, time);
    if (found != EOF)
        fail("own", 0, NULL, "%s: entry %u is not a whole number", options.file, count);
    fclose(file);
    return count;
}

static unsigned own_module(void) {
    unsigned count;

    if (!options.file)
        fail("own", 0, NULL, "a module needs --file, where the times are read");
    module_insert(options.object);
    print_loaded((struct image){});
    trigger();
    count = print_file();
    module_remove(options.object);
    return count;
}

void own_run(void) {
    unsigned count = strcmp(options.backend, "own-module") ? own_bpf() : own_module();

    if (!count)
        fail("own", 0, NULL, "%s: no time was written while %s ran", options.object, options.event[0]);
    json_begin("end");
    json_count("calls", count);
    json_end();
}
