// SPDX-License-Identifier: Apache-2.0
// The options of the command line.
#pragma once

#include "command_line.h"
#include "frame_sizes.h"
#include "redirect.h"

#include <stdbool.h>

struct options {
    const char *interface;
    const char *workload;
    const char *init; // NULL: the workload's state is all zeros
    unsigned queues;
    unsigned native;      // 0: generic
    unsigned zerocopy;    // 0: copy
    struct cpu_list cpus; // queue i runs on the (i % count)-th
    unsigned fifo;        // real-time priority; 0: none requested
    unsigned batch;
    bool busy;
    bool frags;               // frames of several descriptors
    unsigned run_id;          // of the test frames
    struct frame_sizes sizes; // of the test frames; count 0: frames are not checked
    unsigned vlan;            // of the test frames; NO_VLAN: no tag
    unsigned ip_version;
};

// Fills the options. --help prints the help and exits with 0; a wrong option prints an error and exits
// with 2.
void parse_options(struct options *options, int argc, char **argv);
