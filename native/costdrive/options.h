// SPDX-License-Identifier: Apache-2.0
// What the command line asks for.
#pragma once

#include <stdbool.h>

enum way { WAY_LIVE, WAY_PACKETS, WAY_TEST_RUN };

struct options {
    unsigned program;        // its id
    enum way way;            // how frames reach it
    bool gro;                // generic mode takes live frames only from a device with NAPI
    bool anew;               // what the program has changed of a frame does not stay with its page
    bool device_bound;       // no test run has what the driver's functions read
    const char *dut;         // the interface that it is attached to
    const char *tg;          // the one at the other end
    const char *frames;      // a file: a frame in each line, in hexadecimal, without FCS
    unsigned window;         // frames of the smaller window; the larger has twice as many
    unsigned rounds;         // how often each
    unsigned application;    // the process that takes the frames in user space; 0: none
    unsigned long long root; // the address of the kernel's function below which frames are sent
};

void parse_options(struct options *options, int argc, char **argv);
