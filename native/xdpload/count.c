// SPDX-License-Identifier: Apache-2.0
// The counter of counting builds.
#include "commands.h"
#include "fail.h"
#include "json.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

static const struct bpf_map *count_map(const struct program *program) {
    const struct bpf_map *map = bpf_object__find_map_by_name(program->object, "xdplab_count");
    if (!map)
        map = bpf_object__find_map_by_name(program->object, ".data.xdplab_count");
    if (!map || bpf_map__value_size(map) != sizeof(uint64_t)) {
        complain("count", ENOENT, "the program has no map xdplab_count: it is not a counting build");
        return NULL;
    }
    return map;
}

static size_t count_copies(const struct bpf_map *map) {
    return bpf_map__type(map) == BPF_MAP_TYPE_PERCPU_ARRAY ? libbpf_num_possible_cpus() : 1;
}

void count(const struct program *program, char *arguments) {
    (void)arguments;
    const struct bpf_map *map = count_map(program);
    if (!map)
        return;
    size_t copies = count_copies(map);
    uint64_t *values = calloc(copies, sizeof(*values)), sum = 0;
    unsigned key = 0;
    if (!values || bpf_map_lookup_elem(bpf_map__fd(map), &key, values)) {
        complain("count", errno, "map %s cannot be read", bpf_map__name(map));
    } else {
        for (size_t i = 0; i < copies; i++)
            sum += values[i];
        json_begin("count");
        json_integer("value", sum);
        json_end();
    }
    free(values);
}

void reset(const struct program *program, char *arguments) {
    (void)arguments;
    const struct bpf_map *map = count_map(program);
    if (!map)
        return;
    uint64_t *zeroes = calloc(count_copies(map), sizeof(*zeroes));
    unsigned key = 0;
    if (!zeroes || bpf_map_update_elem(bpf_map__fd(map), &key, zeroes, BPF_ANY)) {
        complain("reset", errno, "map %s cannot be written", bpf_map__name(map));
    } else {
        json_begin("reset");
        json_end();
    }
    free(zeroes);
}
