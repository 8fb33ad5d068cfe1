// SPDX-License-Identifier: Apache-2.0
#ifndef MICROBENCH_OPTIONS_H
#define MICROBENCH_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

struct options {
    const char *benchmark;
    const char *backend;
    const char *object;       // what the backend loads: BPF object, module, shared object
    const char *state;        // file with the working set's first contents; NULL: zeros
    unsigned long long input; // of each call
    unsigned calls;
    unsigned pause_us;              // before each call
    bool counted;                   // between marks, in a guest that costplugin watches
    bool cold;                      // load anew before each call
    unsigned long long evict_bytes; // walked through before each call, so that the caches hold nothing else
    const char *map;                // of a user's own BPF object, or
    const char *file;               // of a user's own module: where the times are read
    char **event;                   // the command that triggers them
};

extern struct options options;

void options_read(int argument_count, char **arguments);

#endif
