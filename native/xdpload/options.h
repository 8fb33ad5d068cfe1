// SPDX-License-Identifier: Apache-2.0
// What the command line asks for.
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum mode { MODE_NONE, MODE_NATIVE, MODE_GENERIC, MODE_OFFLOAD, MODE_TCX, MODE_TC, MODE_NETKIT };

// One NAME=VALUE of --rodata, --init, --max-entries, --map or --entries.
struct setting {
    const char *name;
    const char *value;
};

struct settings {
    struct setting *items;
    size_t count;
};

struct options {
    const char *object;
    const char *section; // NULL: by program name, or the object's first one for the mode
    const char *program;
    const char *interface; // NULL only with MODE_NONE
    enum mode mode;
    bool count_actions;
    bool keep_pins;
    bool zero_seed;
    bool device_bound;
    bool tc;              // the program is one of tc: by the mode, or as told with MODE_NONE
    struct settings also; // names alone
    struct settings map;
    struct settings entries;
    const char *share_maps; // ids, in the object's order; the program is not attached then
    struct settings rodata;
    struct settings init;
    struct settings max_entries;
};

const char *mode_name(enum mode mode);

// Whether programs see the kernel's packets (skb), and are of type tc.
static inline bool is_tc(enum mode mode) { return mode >= MODE_TCX; }

// Fills the options; prints help (exit 0) or what is wrong with them (exit 2) and does not return otherwise.
void parse_options(struct options *options, int argc, char **argv);
