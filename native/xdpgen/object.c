// SPDX-License-Identifier: Apache-2.0
#include "object.h"
#include "fail.h"
#include "refusal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <bpf/libbpf.h>

struct bpf_object *object_open(const char *name, const char *start, const char *end, const void *settings,
                               size_t settings_size) {
    LIBBPF_OPTS(bpf_object_open_opts, options, .object_name = name);
    struct bpf_object *object = bpf_object__open_mem(start, end - start, &options);
    struct bpf_map *rodata;

    if (!object) {
        failed("open", errno, NULL, "the embedded BPF object '%s' cannot be opened: %s", name,
               refusal_reason());
        return NULL;
    }
    rodata = bpf_object__find_map_by_name(object, ".rodata");
    if (!rodata || bpf_map__set_initial_value(rodata, settings, settings_size)) {
        failed("rodata", EINVAL, NULL, "the embedded BPF object '%s' does not have the settings expected",
               name);
        bpf_object__close(object);
        return NULL;
    }
    return object;
}

const char *object_compiler(void) {
    return refusal_compiler(embedded_send_start, embedded_send_end - embedded_send_start);
}

int object_load(struct bpf_object *object) {
    refusal_forget();
    int error = bpf_object__load(object);

    if (!error)
        return 0;
    return failed("load", error, refusal_words(), "the kernel refuses %s%s: %s",
                  refusal_program(bpf_object__name(object)), object_compiler(), strerror(-error));
}

int object_map_fd(struct bpf_object *object, const char *map) {
    return bpf_object__find_map_fd_by_name(object, map);
}

void *object_memory(struct bpf_object *object, size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, object_map_fd(object, ".bss"), 0);

    if (memory != MAP_FAILED)
        return memory;
    failed("load", errno, NULL, "the memory of the BPF object '%s' cannot be mapped",
           bpf_object__name(object));
    return NULL;
}

int object_program_fd(struct bpf_object *object, const char *program) {
    return bpf_program__fd(bpf_object__find_program_by_name(object, program));
}

void *per_cpu_values(size_t value_size) { return calloc(libbpf_num_possible_cpus(), value_size); }
