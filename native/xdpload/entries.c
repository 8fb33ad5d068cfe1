// SPDX-License-Identifier: Apache-2.0
#include "entries.h"
#include "fail.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define NO_BATCH 524            // ENOTSUPP: this kind of map takes its entries one by one
#define CHUNK_BYTES (8UL << 20) // of values that go to the kernel in one call
#define MOST_AT_ONCE 65536

// Keys and values of one map, as the file has them. A map of values per CPU gets each for every CPU: `chunk`
// holds as many so as one call takes.
struct entries {
    const char *map;
    int fd;
    size_t key_size, value_size, stride, copies, count, at_once;
    const char *keys, *values;
    char *chunk;
};

// What of a map decides how it is filled. libbpf forgets the maps in a map once it has loaded them.
struct shape {
    enum bpf_map_type type;
    unsigned key_size, value_size, max_entries, flags;
};

struct inner {
    const struct bpf_map *outer;
    struct shape shape;
    struct inner *next;
};

static struct inner *inners;

struct file {
    const char *bytes;
    size_t length;
};

static bool refuse(const char *map, int error, const char *why) {
    complain("map", error, "%s: its entries are refused: %s", map, why);
    return false;
}

static struct shape shape_of(const struct bpf_map *map) {
    return (struct shape){.type = bpf_map__type(map),
                          .key_size = bpf_map__key_size(map),
                          .value_size = bpf_map__value_size(map),
                          .max_entries = bpf_map__max_entries(map),
                          .flags = bpf_map__map_flags(map)};
}

void remember_inner_maps(struct bpf_object *object) {
    struct bpf_map *map;
    bpf_object__for_each_map(map, object) {
        const struct bpf_map *template = bpf_map__inner_map(map);
        struct inner *inner = template ? malloc(sizeof(*inner)) : NULL;
        if (!inner)
            continue;
        *inner = (struct inner){map, shape_of(template), inners};
        inners = inner;
    }
}

static const struct shape *shape_in(const struct bpf_map *outer) {
    for (const struct inner *inner = inners; inner; inner = inner->next)
        if (inner->outer == outer)
            return &inner->shape;
    return NULL;
}

static bool is_per_cpu(enum bpf_map_type type) {
    return type == BPF_MAP_TYPE_PERCPU_ARRAY || type == BPF_MAP_TYPE_PERCPU_HASH ||
           type == BPF_MAP_TYPE_LRU_PERCPU_HASH;
}

static bool is_lru(const struct bpf_map *map) {
    return bpf_map__type(map) == BPF_MAP_TYPE_LRU_HASH || bpf_map__type(map) == BPF_MAP_TYPE_LRU_PERCPU_HASH;
}

// Mapped, as a file of a million entries is read once.
static bool map_file(struct file *file, const char *map, const char *path) {
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC), error = 0;
    *file = (struct file){.bytes = ""};
    if (fd < 0 || fstat(fd, &status))
        error = errno;
    else if ((file->length = status.st_size)) {
        file->bytes = mmap(NULL, file->length, PROT_READ, MAP_PRIVATE, fd, 0);
        error = file->bytes == MAP_FAILED ? errno : 0;
    }
    if (fd >= 0)
        close(fd);
    return !error || refuse(map, error, path);
}

static void unmap_file(struct file *file) {
    if (file->length)
        munmap((void *)file->bytes, file->length);
}

// Values of maps per CPU are rounded up to 8 bytes, and one follows the other.
static bool describe(struct entries *entries, const char *name, const struct shape *shape, int fd) {
    bool spread = is_per_cpu(shape->type);
    *entries = (struct entries){.map = name, .fd = fd, .copies = 1};
    entries->key_size = shape->key_size;
    entries->value_size = entries->stride = shape->value_size;
    if (spread) {
        entries->copies = libbpf_num_possible_cpus();
        entries->stride = entries->copies * ((entries->value_size + 7) / 8 * 8);
    }
    entries->at_once = CHUNK_BYTES / (entries->stride + 1) + 1;
    if (entries->at_once > MOST_AT_ONCE)
        entries->at_once = MOST_AT_ONCE;
    entries->chunk = spread ? calloc(entries->at_once, entries->stride) : NULL;
    return !spread || entries->chunk || refuse(entries->map, ENOMEM, "there is no memory for values per CPU");
}

static const char *key_at(const struct entries *entries, size_t i) {
    return entries->keys + i * entries->key_size;
}

// `count` values as the kernel takes them; good until the next call.
static const char *values_at(const struct entries *entries, size_t from, size_t count) {
    const char *given = entries->values + from * entries->value_size;
    size_t each = entries->stride / entries->copies;
    if (!entries->chunk)
        return given;
    for (size_t i = 0; i < count; i++)
        for (size_t cpu = 0; cpu < entries->copies; cpu++)
            memcpy(entries->chunk + i * entries->stride + cpu * each, given + i * entries->value_size,
                   entries->value_size);
    return entries->chunk;
}

// Returns 0, or an errno.
static int update_each(const struct entries *entries, size_t from) {
    for (size_t i = from; i < entries->count; i++)
        if (bpf_map_update_elem(entries->fd, key_at(entries, i), values_at(entries, i, 1), BPF_ANY))
            return errno;
    return 0;
}

static int update_all(const struct entries *entries) {
    LIBBPF_OPTS(bpf_map_batch_opts, options);
    for (size_t from = 0; from < entries->count;) {
        size_t left = entries->count - from;
        __u32 count = left < entries->at_once ? left : entries->at_once;
        int error = bpf_map_update_batch(entries->fd, key_at(entries, from), values_at(entries, from, count),
                                         &count, &options);
        if (error == -NO_BATCH || error == -EINVAL || error == -EPERM) // also a kernel before 5.6
            return update_each(entries, from);
        if (error)
            return -error;
        from += count;
    }
    return 0;
}

// ---- the order of prefixes ----

#define LENGTH sizeof(__u32) // of a prefix, before its address

// By the byte at `at`; equal ones stay as they came. False where all have the same.
static bool sort_by_byte(const char *from, char *to, size_t count, size_t size, size_t at) {
    size_t ends[256] = {0};
    for (size_t i = 0; i < count; i++)
        ends[(unsigned char)from[i * size + at]]++;
    if (ends[(unsigned char)from[at]] == count)
        return false;
    for (size_t byte = 1; byte < 256; byte++)
        ends[byte] += ends[byte - 1];
    for (size_t i = count; i--;)
        memcpy(to + --ends[(unsigned char)from[i * size + at]] * size, from + i * size, size);
    return true;
}

// Puts a trie's entries into the order of their addresses: neighbours share the nodes on their way, which are
// then in the cache. Without memory for it they stay in the file's. Returns what is to be freed.
static char *sort_prefixes(struct entries *entries) {
    size_t key = entries->key_size, value = entries->value_size, size = key + value, count = entries->count;
    char *pairs = count ? malloc(2 * count * size) : NULL, *from = pairs, *to = pairs + count * size;
    if (!pairs)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        memcpy(from + i * size, key_at(entries, i), key);
        memcpy(from + i * size + key, entries->values + i * value, value);
    }
    for (size_t at = key; at-- > LENGTH;) {
        if (!sort_by_byte(from, to, count, size, at))
            continue;
        char *sorted = to;
        to = from;
        from = sorted;
    }
    for (size_t i = 0; i < count; i++) {
        memcpy(to + i * key, from + i * size, key);
        memcpy(to + count * key + i * value, from + i * size + key, value);
    }
    entries->keys = to;
    entries->values = to + count * key;
    return pairs;
}

// ---- read back ----

static __u64 mixed(__u64 sum, const char *bytes, size_t length) {
    for (size_t i = 0; i < length; i++)
        sum = (sum ^ (unsigned char)bytes[i]) * 0x100000001b3; // FNV-1a
    return sum;
}

// Of one entry; a map's sum does not depend on their order.
static __u64 sum_of(const struct entries *entries, const char *key, const char *values) {
    return mixed(mixed(0xcbf29ce484222325, key, entries->key_size), values, entries->stride);
}

static __u64 sum_of_file(const struct entries *entries) {
    __u64 sum = 0;
    for (size_t i = 0; i < entries->count; i++)
        sum += sum_of(entries, key_at(entries, i), values_at(entries, i, 1));
    return sum;
}

// Whether the whole map, read in few calls, is what the file has. False also where it cannot be read so.
static bool is_same(const struct entries *entries) {
    size_t room = entries->at_once, at = 0;
    char *keys = malloc(room * entries->key_size), *values = malloc(room * entries->stride);
    char *next = malloc(entries->key_size + sizeof(__u32));
    __u64 sum = 0;
    int error = keys && values && next ? 0 : -ENOMEM;
    for (size_t seen = 0; !error; seen = at) {
        __u32 count = room;
        error = bpf_map_lookup_batch(entries->fd, seen ? next : NULL, next, keys, values, &count, NULL);
        if (error && error != -ENOENT)
            break;
        for (__u32 i = 0; i < count; i++)
            sum += sum_of(entries, keys + i * entries->key_size, values + i * entries->stride);
        at += count;
    }
    free(keys);
    free(values);
    free(next);
    return error == -ENOENT && at == entries->count && sum == sum_of_file(entries);
}

// What is in the map now: a map that evicts entries, or another writer, would go unnoticed.
static bool read_back(const struct entries *entries) {
    if (is_same(entries))
        return true;
    char *now = malloc(entries->stride + 1);
    size_t missing = 0, differ = 0;
    for (size_t i = 0; now && i < entries->count; i++) {
        if (bpf_map_lookup_elem(entries->fd, key_at(entries, i), now))
            missing++;
        else if (memcmp(now, values_at(entries, i, 1), entries->stride))
            differ++;
    }
    bool whole = now && !missing && !differ;
    free(now);
    if (!whole)
        complain("map", EIO,
                 "%s: of %zu entries, %zu are not there and %zu have another value once they are put in",
                 entries->map, entries->count, missing, differ);
    return whole;
}

static bool put_in(const struct entries *entries) {
    int error = update_all(entries);
    return error ? refuse(entries->map, error, error_words(error)) : read_back(entries);
}

// One value for every index of an array.
static int update_same(const struct entries *entries, unsigned indices) {
    for (unsigned i = 0; i < indices; i++)
        if (bpf_map_update_elem(entries->fd, &i, values_at(entries, 0, 1), BPF_ANY))
            return errno;
    return 0;
}

// A file of a map of data: all keys, then all values; or one value.
static bool fill_data(const struct bpf_map *map, const struct file *file) {
    struct entries entries;
    struct shape shape = shape_of(map);
    bool done = describe(&entries, bpf_map__name(map), &shape, bpf_map__fd(map));
    size_t one = entries.key_size + entries.value_size;
    bool same = file->length == entries.value_size && entries.key_size == sizeof(unsigned);
    entries.count = same ? 0 : file->length / (one + !one);
    entries.keys = file->bytes;
    entries.values = file->bytes + entries.count * entries.key_size;
    if (done && !same && file->length != entries.count * one)
        done = refuse(entries.map, EINVAL, "the file has other sizes of keys and values than the map");
    char *sorted = done && shape.type == BPF_MAP_TYPE_LPM_TRIE ? sort_prefixes(&entries) : NULL;
    int error = done && same ? update_same(&entries, shape.max_entries) : 0;
    if (error)
        done = refuse(entries.map, error, error_words(error));
    done = done && put_in(&entries);
    free(sorted);
    free(entries.chunk);
    return done;
}

// ---- maps in a map ----

static int make_inner(const struct shape *shape) {
    LIBBPF_OPTS(bpf_map_create_opts, options, .map_flags = shape->flags);
    return bpf_map_create(shape->type, NULL, shape->key_size, shape->value_size, shape->max_entries,
                          &options);
}

#define INNER_AT_ONCE 256 // open descriptors; the kernel waits for all CPUs after each call

// The outer map takes a descriptor, and gives the map's number.
static bool holds(const struct entries *outer, size_t i, int fd) {
    struct bpf_map_info info = {};
    __u32 length = sizeof(info), number = 0;
    return !bpf_map_lookup_elem(outer->fd, key_at(outer, i), &number) &&
           !bpf_obj_get_info_by_fd(fd, &info, &length) && info.id == number;
}

static bool hold_all(const struct entries *outer) {
    int error = update_all(outer);
    if (error)
        return refuse(outer->map, error, error_words(error));
    for (size_t i = 0; i < outer->count; i++)
        if (!holds(outer, i, ((const int *)(const void *)outer->values)[i]))
            return refuse(outer->map, EIO, "a map that was put in is not the one that is there");
    return true;
}

static bool fill_inner(const struct shape *shape, struct entries *inner) {
    inner->fd = make_inner(shape);
    return inner->fd < 0 ? refuse(inner->map, errno, "a map in it cannot be made") : put_in(inner);
}

static __u32 number_at(const char *numbers, size_t i) {
    __u32 number;
    memcpy(&number, numbers + i * sizeof(number), sizeof(number));
    return number;
}

// How many maps the file has; their keys, how many entries each has, and the keys and values of these.
// False where the sizes are not those of the maps.
static bool find_parts(const struct file *file, struct entries *outer, const char **counts,
                       struct entries *inner) {
    __u64 count = 0, sum = 0, head = sizeof(count), one = inner->key_size + inner->value_size;
    if (file->length < head)
        return false;
    memcpy(&count, file->bytes, head);
    if (count > (file->length - head) / (outer->key_size + sizeof(__u32)))
        return false;
    outer->count = count;
    outer->keys = file->bytes + head;
    *counts = key_at(outer, count);
    for (size_t i = 0; i < count; i++)
        sum += number_at(*counts, i);
    inner->keys = *counts + count * sizeof(__u32);
    inner->values = inner->keys + sum * inner->key_size;
    return one && (file->bytes + file->length - inner->keys) / one == sum &&
           inner->keys + sum * one == file->bytes + file->length;
}

// The next maps of the outer one.
static bool fill_some(struct entries *outer, const char *counts, const struct shape *shape,
                      struct entries *inner) {
    int fds[INNER_AT_ONCE];
    size_t made = 0;
    bool done = true;
    for (size_t i = 0; done && i < outer->count; i++) {
        inner->count = number_at(counts, i);
        done = fill_inner(shape, inner);
        if (inner->fd >= 0)
            fds[made++] = inner->fd;
        inner->keys += inner->count * inner->key_size;
        inner->values += inner->count * inner->value_size;
    }
    outer->values = (const char *)fds;
    done = done && hold_all(outer);
    outer->values = NULL;
    while (made)
        close(fds[--made]);
    return done;
}

// A file of a map of maps: the number of maps (u64), their keys, how many entries each has (u32), then all
// keys of these entries, then all values.
static bool fill_maps_in(const struct bpf_map *map, const struct file *file) {
    const struct shape *template = shape_in(map), shape = shape_of(map);
    struct entries outer, inner = {0};
    const char *counts = NULL;
    if (!template)
        return refuse(bpf_map__name(map), EINVAL, "the object does not declare the maps in it");
    bool done = describe(&outer, bpf_map__name(map), &shape, bpf_map__fd(map)) &&
                describe(&inner, bpf_map__name(map), template, -1);
    if (done && !find_parts(file, &outer, &counts, &inner))
        done = refuse(outer.map, EINVAL, "the file has other sizes of keys and values than the maps in it");
    for (size_t at = 0, whole = outer.count; done && at < whole; at += outer.count) {
        outer.count = whole - at < INNER_AT_ONCE ? whole - at : INNER_AT_ONCE;
        done = fill_some(&outer, counts + at * sizeof(__u32), template, &inner);
        outer.keys = key_at(&outer, outer.count);
    }
    free(inner.chunk);
    return done;
}

// ---- any map ----

// An LRU map holds free entries back for each CPU: filled by one CPU alone it takes as many as it has room
// for.
static void stay_on(const cpu_set_t *cpus) {
    if (cpus)
        sched_setaffinity(0, sizeof(*cpus), cpus);
}

bool fill_from(const struct bpf_map *map, const char *path) {
    struct file file;
    cpu_set_t before, one;
    bool of_maps =
        bpf_map__type(map) == BPF_MAP_TYPE_HASH_OF_MAPS || bpf_map__type(map) == BPF_MAP_TYPE_ARRAY_OF_MAPS;
    bool stays = is_lru(map) && !sched_getaffinity(0, sizeof(before), &before);
    if (!map_file(&file, bpf_map__name(map), path))
        return false;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    stay_on(stays ? &one : NULL);
    bool done = of_maps ? fill_maps_in(map, &file) : fill_data(map, &file);
    stay_on(stays ? &before : NULL);
    unmap_file(&file);
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
        if (!fill_from(map, one->value))
            return false;
    }
    return true;
}
