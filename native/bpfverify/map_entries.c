// SPDX-License-Identifier: Apache-2.0
#include "map_entries.h"

#include <bpf/libbpf.h>
#include <linux/bpf.h>
#include <stdbool.h>
#include <unistd.h>

// No verifier looks at the number of a hash map's entries, but the kernel allocates them all: half a million
// take 0.3 s.
#define ENOUGH_OF_A_HASH 16

static bool is_hash(unsigned type) {
    return type == BPF_MAP_TYPE_HASH || type == BPF_MAP_TYPE_PERCPU_HASH || type == BPF_MAP_TYPE_LRU_HASH ||
           type == BPF_MAP_TYPE_LRU_PERCPU_HASH;
}

// Types that may be newer than the kernel's headers here.
enum { PERCPU_CGROUP_STORAGE = 21, RING_BUFFER = 27, USER_RING_BUFFER = 31, CGRP_STORAGE = 32 };

static bool is_sized_by_kernel(unsigned type) {
    return type == BPF_MAP_TYPE_SK_STORAGE || type == BPF_MAP_TYPE_TASK_STORAGE ||
           type == BPF_MAP_TYPE_INODE_STORAGE || type == BPF_MAP_TYPE_CGROUP_STORAGE ||
           type == PERCPU_CGROUP_STORAGE || type == CGRP_STORAGE || type == BPF_MAP_TYPE_STRUCT_OPS;
}

unsigned map_entries(unsigned type, unsigned wanted) {
    if (is_hash(type))
        return wanted && wanted < ENOUGH_OF_A_HASH ? wanted : ENOUGH_OF_A_HASH;
    if (wanted || is_sized_by_kernel(type))
        return wanted;
    if (type == RING_BUFFER || type == USER_RING_BUFFER)
        return sysconf(_SC_PAGESIZE);
    return type == BPF_MAP_TYPE_PERF_EVENT_ARRAY ? libbpf_num_possible_cpus() : 1;
}
