// SPDX-License-Identifier: Apache-2.0
#include "setup.h"
#include "fail.h"
#include "refusal.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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

void zero_seeds(struct bpf_object *object) {
    struct bpf_map *map;
    bpf_object__for_each_map(map, object) {
        enum bpf_map_type type = bpf_map__type(map);
        if (type == BPF_MAP_TYPE_HASH || type == BPF_MAP_TYPE_PERCPU_HASH || type == BPF_MAP_TYPE_LRU_HASH ||
            type == BPF_MAP_TYPE_LRU_PERCPU_HASH)
            bpf_map__set_map_flags(map, bpf_map__map_flags(map) | BPF_F_ZERO_SEED);
    }
}

struct content {
    char *bytes;
    size_t length;
};

static struct content read_content(const char *path) {
    struct content content = {};
    struct stat status;
    FILE *file = fopen(path, "rb");
    if (!file || fstat(fileno(file), &status))
        fail("init", errno, NULL, "%s cannot be read", path);
    content.length = status.st_size;
    content.bytes = malloc(content.length + 1);
    if (!content.bytes || fread(content.bytes, 1, content.length, file) != content.length)
        fail("init", EIO, NULL, "%s cannot be read to its end", path);
    fclose(file);
    return content;
}

bool is_per_cpu(const struct bpf_map *map) {
    enum bpf_map_type type = bpf_map__type(map);
    return type == BPF_MAP_TYPE_PERCPU_ARRAY || type == BPF_MAP_TYPE_PERCPU_HASH ||
           type == BPF_MAP_TYPE_LRU_PERCPU_HASH;
}

// A per-CPU map takes the value of every possible CPU at once, each rounded up to 8 bytes.
static void fill_entry(const struct bpf_map *map, unsigned key, const char *value, char *copies) {
    const void *given = value;
    size_t value_size = bpf_map__value_size(map);
    if (is_per_cpu(map)) {
        size_t stride = (value_size + 7) / 8 * 8;
        for (int cpu = 0; cpu < libbpf_num_possible_cpus(); cpu++)
            memcpy(copies + cpu * stride, value, value_size);
        given = copies;
    }
    if (bpf_map_update_elem(bpf_map__fd(map), &key, given, BPF_ANY))
        fail("init", errno, NULL, "entry %u of map %s cannot be set", key, bpf_map__name(map));
}

static void fill_map(struct bpf_map *map, const char *path) {
    struct content content = read_content(path);
    size_t value_size = bpf_map__value_size(map);
    size_t entries = bpf_map__max_entries(map);
    if (bpf_map__key_size(map) != sizeof(unsigned))
        fail("init", EINVAL, NULL, "map %s has keys of %u bytes; only 4-byte indices 0, 1, … can be filled",
             bpf_map__name(map), bpf_map__key_size(map));
    if (content.length != value_size && content.length != value_size * entries)
        fail("init", EINVAL, NULL, "%s has %zu bytes; map %s takes %zu (one value) or %zu (%zu entries)",
             path, content.length, bpf_map__name(map), value_size, value_size * entries, entries);
    char *copies = calloc(libbpf_num_possible_cpus(), (value_size + 7) / 8 * 8);
    if (!copies)
        fail("init", ENOMEM, NULL, "no memory for the values of map %s", bpf_map__name(map));
    size_t step = content.length == value_size ? 0 : value_size;
    for (size_t key = 0; key < entries; key++)
        fill_entry(map, key, content.bytes + key * step, copies);
    free(copies);
    free(content.bytes);
}

void fill_maps(struct bpf_object *object, const struct settings *settings) {
    for (size_t i = 0; i < settings->count; i++)
        fill_map(find_map(object, "init", settings->items[i].name), settings->items[i].value);
}
