// SPDX-License-Identifier: Apache-2.0
#include "setup.h"
#include "entries.h"
#include "fail.h"
#include "refusal.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct bpf_map *find_map(struct bpf_object *object, const char *step, const char *name) {
    struct bpf_map *map = bpf_object__find_map_by_name(object, name);
    char names[512] = "";
    if (map)
        return map;
    bpf_object__for_each_map(map, object)
        snprintf(names + strlen(names), sizeof(names) - strlen(names), " %s", bpf_map__name(map));
    fail(step, ENOENT, NULL, "there is no map %s; there are:%s", name, *names ? names : " none");
}

// 0 if it is not a number of entries.
static long parse_entries(const char *text) {
    if (!strcmp(text, "cpus"))
        return libbpf_num_possible_cpus();
    char *end;
    errno = 0;
    long entries = strtol(text, &end, 10);
    return errno || *end || entries < 0 || entries > (long)__UINT32_MAX__ ? 0 : entries;
}

void resize_maps(struct bpf_object *object, const struct settings *settings) {
    for (size_t i = 0; i < settings->count; i++) {
        const struct setting *setting = &settings->items[i];
        struct bpf_map *map = find_map(object, "max-entries", setting->name);
        long entries = parse_entries(setting->value);
        if (!entries)
            fail("max-entries", EINVAL, NULL, "%s: %s is not a number of entries", setting->name,
                 setting->value);
        int error = bpf_map__set_max_entries(map, entries);
        if (error)
            fail("max-entries", -error, refusal_words(), "%s cannot have %ld entries", setting->name,
                 entries);
    }
}

static void zero_seed(struct bpf_map *map) {
    enum bpf_map_type type = map ? bpf_map__type(map) : BPF_MAP_TYPE_UNSPEC;
    if (type == BPF_MAP_TYPE_HASH || type == BPF_MAP_TYPE_PERCPU_HASH || type == BPF_MAP_TYPE_LRU_HASH ||
        type == BPF_MAP_TYPE_LRU_PERCPU_HASH)
        bpf_map__set_map_flags(map, bpf_map__map_flags(map) | BPF_F_ZERO_SEED);
}

void zero_seeds(struct bpf_object *object) {
    struct bpf_map *map;
    bpf_object__for_each_map(map, object) {
        zero_seed(map);
        zero_seed(bpf_map__inner_map(map));
    }
}

void fill_maps(struct bpf_object *object, const struct settings *settings) {
    for (size_t i = 0; i < settings->count; i++)
        if (!fill_from(find_map(object, "init", settings->items[i].name), settings->items[i].value))
            exit(EXIT_FAILURE); // the error line is printed
}
