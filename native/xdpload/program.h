// SPDX-License-Identifier: Apache-2.0
// One XDP or tc program of an object: opened, set up, loaded, reported.
#pragma once

#include "options.h"

#include <bpf/libbpf.h>

struct program {
    struct bpf_object *object;
    struct bpf_program *handle;
    enum bpf_prog_type type; // BPF_PROG_TYPE_XDP or BPF_PROG_TYPE_SCHED_CLS
    int fd;
    unsigned id; // once it is loaded
    const struct options *options;
    long long open_ns;
    const char *device; // the interface whose driver's kfuncs it calls, or NULL
};

// What a program of this type is loaded for.
static inline unsigned attach_type_of(enum bpf_prog_type type) {
    return type == BPF_PROG_TYPE_XDP ? BPF_XDP : 0;
}

// Each of these ends the process with an error line where it cannot do its work.
void open_program(struct program *program, const struct options *options);
void load_program(struct program *program, const struct options *options, int ifindex);
void print_loaded(const struct program *program);

// bpf_prog_get_info into *info, whose pointers and lengths the caller may have set; returns 0 or -errno.
struct bpf_prog_info;
int program_info(const struct program *program, struct bpf_prog_info *info);

// Loads the least program there is, for a device or for none (0); returns its fd or -errno.
int load_nothing(enum bpf_prog_type type, int ifindex, unsigned flags);
