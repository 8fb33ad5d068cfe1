// SPDX-License-Identifier: Apache-2.0
// The counters of a counting build, or of a map that a command names.
#include "commands.h"
#include "fail.h"
#include "json.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

static const struct bpf_map *count_map(const struct program *program, const char *name) {
    const struct bpf_map *map = bpf_object__find_map_by_name(program->object, *name ? name : "xdplab_count");
    if (!map && !*name)
        map = bpf_object__find_map_by_name(program->object, ".data.xdplab_count");
    if (!map || bpf_map__value_size(map) % sizeof(uint64_t)) {
        complain("count", ENOENT, "the program has no map xdplab_count: it is not a counting build");
        return NULL;
    }
    return map;
}

static size_t count_copies(const struct bpf_map *map) {
    return bpf_map__type(map) == BPF_MAP_TYPE_PERCPU_ARRAY ? libbpf_num_possible_cpus() : 1;
}

// Each word of a value, summed over all entries and CPUs.
void count(const struct program *program, char *arguments) {
    const struct bpf_map *map = count_map(program, arguments);
    if (!map)
        return;
    size_t copies = count_copies(map), words = bpf_map__value_size(map) / sizeof(uint64_t);
    uint64_t *values = calloc((copies + 1) * words, sizeof(*values)), *sums = values + copies * words;
    int error = values ? 0 : ENOMEM;
    for (unsigned key = 0; !error && key < bpf_map__max_entries(map); key++) {
        error = bpf_map_lookup_elem(bpf_map__fd(map), &key, values) ? errno : 0;
        for (size_t i = 0; !error && i < copies * words; i++)
            sums[i % words] += values[i];
    }
    if (error) {
        complain("count", error, "map %s cannot be read", bpf_map__name(map));
    } else {
        json_begin("count");
        json_open_array("values");
        for (size_t i = 0; i < words; i++)
            json_count(NULL, sums[i]);
        json_close();
        json_end();
    }
    free(values);
}

void reset(const struct program *program, char *arguments) {
    const struct bpf_map *map = count_map(program, arguments);
    if (!map)
        return;
    void *zeroes = calloc(count_copies(map), bpf_map__value_size(map));
    int error = zeroes ? 0 : ENOMEM;
    for (unsigned key = 0; !error && key < bpf_map__max_entries(map); key++)
        error = bpf_map_update_elem(bpf_map__fd(map), &key, zeroes, BPF_ANY) ? errno : 0;
    if (error) {
        complain("reset", error, "map %s cannot be written", bpf_map__name(map));
    } else {
        json_begin("reset");
        json_end();
    }
    free(zeroes);
}
