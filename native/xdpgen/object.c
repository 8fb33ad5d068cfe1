// SPDX-License-Identifier: Apache-2.0
#include "object.h"
#include "error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <bpf/libbpf.h>

static char last_words[512];

static int keep_last_words(enum libbpf_print_level level, const char *format, va_list arguments) {
    if (level == LIBBPF_WARN)
        vsnprintf(last_words, sizeof(last_words), format, arguments);
    return 0;
}

void object_capture_log(void) { libbpf_set_print(keep_last_words); }

struct bpf_object *object_open(const char *name, const char *start, const char *end, const void *settings,
                               size_t settings_size) {
    LIBBPF_OPTS(bpf_object_open_opts, options, .object_name = name);
    struct bpf_object *object = bpf_object__open_mem(start, end - start, &options);
    struct bpf_map *rodata;

    if (!object) {
        fail("open", errno, "the embedded BPF object '%s' cannot be opened: %s", name, last_words);
        return NULL;
    }
    rodata = bpf_object__find_map_by_name(object, ".rodata");
    if (!rodata || bpf_map__set_initial_value(rodata, settings, settings_size)) {
        fail("rodata", EINVAL, "the embedded BPF object '%s' does not have the settings expected", name);
        bpf_object__close(object);
        return NULL;
    }
    return object;
}

int object_load(struct bpf_object *object) {
    int error = bpf_object__load(object);

    if (error)
        return fail("load", error, "the kernel refused the BPF object '%s': %s", bpf_object__name(object),
                    last_words);
    return 0;
}

int object_map_fd(struct bpf_object *object, const char *map) {
    return bpf_object__find_map_fd_by_name(object, map);
}

void *object_memory(struct bpf_object *object, size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, object_map_fd(object, ".bss"), 0);

    if (memory != MAP_FAILED)
        return memory;
    fail("load", errno, "the memory of the BPF object '%s' cannot be mapped", bpf_object__name(object));
    return NULL;
}

int object_program_fd(struct bpf_object *object, const char *program) {
    return bpf_program__fd(bpf_object__find_program_by_name(object, program));
}

void *per_cpu_values(size_t value_size) { return calloc(libbpf_num_possible_cpus(), value_size); }
