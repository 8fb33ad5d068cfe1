// SPDX-License-Identifier: Apache-2.0
#include "entries.h"
#include "fail.h"
#include "setup.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define NO_BATCH 524 // ENOTSUPP: this kind of map takes its entries one by one
#define AT_ONCE 65536

// A file has the keys of all entries, then their values; a map of values per CPU gets each for every CPU.
struct entries {
    const char *map;
    int fd;
    size_t key_size, value_size, stride, count;
    char *bytes, *keys, *values;
};

static bool refuse(const struct entries *entries, int error, const char *why) {
    complain("map", error, "%s: its entries are refused: %s", entries->map, why);
    return false;
}

// Values of maps per CPU are rounded up to 8 bytes, and one follows the other.
static bool spread(struct entries *entries, const char *given, size_t cpus) {
    size_t each = (entries->value_size + 7) / 8 * 8;
    entries->stride = cpus * each;
    entries->values = calloc(entries->count + 1, entries->stride);
    if (!entries->values)
        return refuse(entries, ENOMEM, "there is no memory for the values of every CPU");
    for (size_t i = 0; i < entries->count; i++)
        for (size_t cpu = 0; cpu < cpus; cpu++)
            memcpy(entries->values + i * entries->stride + cpu * each, given + i * entries->value_size,
                   entries->value_size);
    return true;
}

static bool read_file(struct entries *entries, const char *path, size_t *length) {
    struct stat status;
    FILE *file = fopen(path, "rb");
    bool whole = false;
    if (file && !fstat(fileno(file), &status)) {
        *length = status.st_size;
        entries->bytes = malloc(*length + 1);
        whole = entries->bytes && fread(entries->bytes, 1, *length, file) == *length;
    }
    if (file)
        fclose(file);
    return whole || refuse(entries, EIO, path);
}

static bool read_entries(struct entries *entries, const struct bpf_map *map, const char *path) {
    size_t length = 0, one = entries->key_size + entries->value_size;
    if (!read_file(entries, path, &length))
        return false;
    if (!one || length % one)
        return refuse(entries, EINVAL, "the file has other sizes of keys and values than the map");
    entries->count = length / one;
    entries->keys = entries->bytes;
    char *given = entries->bytes + entries->count * entries->key_size;
    if (is_per_cpu(map))
        return spread(entries, given, libbpf_num_possible_cpus());
    entries->values = given;
    entries->stride = entries->value_size;
    return true;
}

static const char *key_at(const struct entries *entries, size_t i) {
    return entries->keys + i * entries->key_size;
}

static const char *value_at(const struct entries *entries, size_t i) {
    return entries->values + i * entries->stride;
}

// Returns 0, or an errno.
static int update_each(const struct entries *entries, size_t from) {
    for (size_t i = from; i < entries->count; i++)
        if (bpf_map_update_elem(entries->fd, key_at(entries, i), value_at(entries, i), BPF_ANY))
            return errno;
    return 0;
}

static int update_all(const struct entries *entries) {
    LIBBPF_OPTS(bpf_map_batch_opts, options);
    for (size_t from = 0; from < entries->count;) {
        __u32 count = entries->count - from < AT_ONCE ? entries->count - from : AT_ONCE;
        int error = bpf_map_update_batch(entries->fd, key_at(entries, from), value_at(entries, from), &count,
                                         &options);
        if (error == -NO_BATCH || error == -EINVAL || error == -EPERM) // also a kernel before 5.6
            return update_each(entries, from);
        if (error)
            return -error;
        from += count;
    }
    return 0;
}

// What is in the map now: a map that evicts entries, or another writer, would go unnoticed.
static bool read_back(const struct entries *entries) {
    char *now = malloc(entries->stride + 1);
    size_t missing = 0, differ = 0;
    for (size_t i = 0; now && i < entries->count; i++) {
        if (bpf_map_lookup_elem(entries->fd, key_at(entries, i), now))
            missing++;
        else if (memcmp(now, value_at(entries, i), entries->stride))
            differ++;
    }
    free(now);
    if (now && !missing && !differ)
        return true;
    complain("map", EIO,
             "%s: of %zu entries, %zu are not there and %zu have another value once they are put in",
             entries->map, entries->count, missing, differ);
    return false;
}

static bool fill_one(const struct bpf_map *map, const char *path) {
    struct entries entries = {.map = bpf_map__name(map),
                              .fd = bpf_map__fd(map),
                              .key_size = bpf_map__key_size(map),
                              .value_size = bpf_map__value_size(map)};
    bool done = read_entries(&entries, map, path);
    int error = done ? update_all(&entries) : 0;
    done = done && (error ? refuse(&entries, error, error_words(error)) : read_back(&entries));
    if (entries.values && is_per_cpu(map))
        free(entries.values);
    free(entries.bytes);
    return done;
}

bool fill_entries(const struct program *program, const struct settings *files) {
    for (size_t i = 0; i < files->count; i++) {
        const struct setting *one = &files->items[i];
        const struct bpf_map *map = bpf_object__find_map_by_name(program->object, one->name);
        if (!map) {
            complain("map", ENOENT, "there is no map %s", one->name);
            return false;
        }
        if (!fill_one(map, one->value))
            return false;
    }
    return true;
}
