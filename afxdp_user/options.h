// SPDX-License-Identifier: Apache-2.0
// What the command line asks for.
#pragma once

#include "command_line.h"
#include "redirect.h"

#include <stdbool.h>

struct options {
    const char *interface;
    const char *workload;
    const char *init; // NULL: the workload's state is all zeros
    unsigned int queues;
    unsigned int native;   // else generic
    unsigned int zerocopy; // else copy
    struct cpu_list cpus;  // queue i runs on the (i % count)-th
    unsigned int fifo;     // real-time priority, 0: none asked
    unsigned int batch;
    bool busy;
    unsigned int run_id;      // of the test frames
    unsigned int frame_bytes; // of each of them, with FCS; 0: frames are not looked at
};

// Fills the options; prints help (exit 0) or what is wrong with them (exit 2) and does not return otherwise.
void parse_options(struct options *options, int argc, char **argv);
