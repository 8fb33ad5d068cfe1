// SPDX-License-Identifier: Apache-2.0
#include "maps.h"
#include "bpf.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct kind {
    const char *name;
    enum bpf_map_type type;
    bool per_cpu;
    bool has_prefix; // its key begins with the length of a prefix, in bits
    uint32_t flags;
};

static const struct kind KINDS[] = {
    {"array", BPF_MAP_TYPE_ARRAY, false, false, 0},
    {"hash", BPF_MAP_TYPE_HASH, false, false, 0},
    {"lru_hash", BPF_MAP_TYPE_LRU_HASH, false, false, 0},
    {"percpu_array", BPF_MAP_TYPE_PERCPU_ARRAY, true, false, 0},
    {"percpu_hash", BPF_MAP_TYPE_PERCPU_HASH, true, false, 0},
    {"lpm_trie", BPF_MAP_TYPE_LPM_TRIE, false, true, BPF_F_NO_PREALLOC},
    {"ringbuf", BPF_MAP_TYPE_RINGBUF, false, false, 0},
};

// The kernel's two positions of a ring buffer, each on a page of its own.
struct ring {
    uint64_t *consumer;
    const uint64_t *producer;
};

static const struct kind *kind_named(const char *name) {
    for (size_t i = 0; i < sizeof(KINDS) / sizeof(*KINDS); i++)
        if (!strcmp(KINDS[i].name, name))
            return &KINDS[i];
    return NULL;
}

bool map_is_known(const char *kind) { return kind_named(kind); }

static int fill(int map, const struct kind *kind, uint32_t entries) {
    long cpus = kind->per_cpu ? sysconf(_SC_NPROCESSORS_CONF) : 1;
    uint64_t *values = calloc(cpus, sizeof(*values));
    int error = values ? 0 : -1;

    for (uint32_t key = 0; !error && key < entries; key++) {
        const uint32_t prefixed[2] = {32, key};
        for (long cpu = 0; cpu < cpus; cpu++)
            values[cpu] = key + 1;
        error = bpf_set(map, kind->has_prefix ? prefixed : &key, values);
    }
    free(values);
    return error;
}

static struct ring *ring_open(int map) {
    long page = sysconf(_SC_PAGESIZE);
    struct ring *ring = malloc(sizeof(*ring));

    if (!ring)
        return NULL;
    ring->consumer = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, map, 0);
    ring->producer = mmap(NULL, page, PROT_READ, MAP_SHARED, map, page);
    if (ring->consumer != MAP_FAILED && ring->producer != MAP_FAILED)
        return ring;
    free(ring);
    return NULL;
}

int map_open(const char *name, uint32_t entries, struct ring **ring) {
    const struct kind *kind = kind_named(name);
    bool is_ring = kind && kind->type == BPF_MAP_TYPE_RINGBUF;
    int map;

    if (!kind) {
        errno = EINVAL;
        return -1;
    }
    map = is_ring ? bpf_map(kind->type, 0, 0, entries, 0)
                  : bpf_map(kind->type, kind->has_prefix ? 8 : 4, 8, entries, kind->flags);
    if (map >= 0 && (is_ring ? !(*ring = ring_open(map)) : fill(map, kind, entries))) {
        close(map);
        return -1;
    }
    return map;
}

void ring_empty(struct ring *ring) {
    if (ring)
        __atomic_store_n(ring->consumer, __atomic_load_n(ring->producer, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
}

void ring_close(struct ring *ring) {
    long page = sysconf(_SC_PAGESIZE);

    if (!ring)
        return;
    munmap(ring->consumer, page);
    munmap((void *)ring->producer, page);
    free(ring);
}
