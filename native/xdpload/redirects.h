// SPDX-License-Identifier: Apache-2.0
// Where redirected frames end, told by the kernel's tracepoints. They slow every redirect on the machine, so
// they are read in a pass of their own.
#pragma once

#include <linux/types.h>

#define REDIRECT_TARGETS 256

struct redirect_settings {
    _Bool
        map_is_pointer; // what the tracepoints name the map by: a pointer before Linux 5.13, then type and id
    __u32 program_id;
    __u32 ifindex;
    __u32 netns; // inode of the network namespace: an index of an interface is unique in it only
};

// What a program named: an entry of a map, or an interface where map_type is BPF_MAP_TYPE_UNSPEC.
struct redirect_target {
    __u32 map_type;
    __u32 map_id;
    __u32 index;
};

struct redirect_decisions {
    __u64 accepted;
    __u64 refused;
};

enum redirect_place { PLACE_DEVICE, PLACE_CPU_QUEUE, PLACE_CPU_THREAD };

struct redirect_arrival {
    __u32 place;  // enum redirect_place
    __u32 map_id; // 0 for a device
    __u32 index;  // of the device, or the CPU
};

struct redirect_arrivals {
    __u64 taken; // by a device; frames that a CPU's thread read. A queue's count holds those that it dropped
    __u64 dropped;
    __u64 first_ns, last_ns; // CPU time of a CPU's thread at the first and at the last of its batches
};

#ifndef __bpf__
#include "options.h"
#include "program.h"

// Follows the program's redirects from now on. If the kernel does not let them be read, the answers say
// why.
void redirects_follow(const struct program *program, const struct options *options, int ifindex);

// Adds "targets", a list of objects, and "targets_missing", null or the reason why there is no list.
void redirects_print(void);
#endif
