// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#define USAGE_EXIT 2

struct options options = {.benchmark = "", .input = 1, .calls = 100};

static const char usage[] =
    "usage: microbench --backend bpf|module|user --benchmark NAME --object FILE [OPTION]…\n"
    "       microbench --backend own-bpf --object FILE --map NAME -- COMMAND…\n"
    "       microbench --backend own-module --object FILE --file PATH -- COMMAND…\n"
    "  --calls N        calls (100)\n"
    "  --pause-us N     pause before each call (0: the calls follow each other)\n"
    "  --input N        handed to each call (1): the chain's length, the matrix' seed\n"
    "  --state FILE     first contents of the working set (zeros)\n"
    "  --cold           load anew before each call\n"
    "  --evict-bytes N  walk through so many bytes before each call (0)\n"
    "Prints JSON lines. COMMAND triggers what a user's own program or module measures.\n";

static void refuse(void) {
    fputs(usage, stderr);
    exit(USAGE_EXIT);
}

static unsigned long long number(const char *text, unsigned long long most) {
    char *end;
    unsigned long long value;

    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno || end == text || *end || *text == '-' || value > most)
        refuse();
    return value;
}

static const struct option names[] = {
    {"backend", required_argument, NULL, 'b'},
    {"benchmark", required_argument, NULL, 'n'},
    {"object", required_argument, NULL, 'o'},
    {"state", required_argument, NULL, 's'},
    {"input", required_argument, NULL, 'i'},
    {"calls", required_argument, NULL, 'c'},
    {"pause-us", required_argument, NULL, 'p'},
    {"cold", no_argument, NULL, 'r'},
    {"evict-bytes", required_argument, NULL, 'e'},
    {"map", required_argument, NULL, 'm'},
    {"file", required_argument, NULL, 'f'},
    {"help", no_argument, NULL, 'h'},
    {},
};

static void take(int option) {
    switch (option) {
    case 'b':
        options.backend = optarg;
        break;
    case 'n':
        options.benchmark = optarg;
        break;
    case 'o':
        options.object = optarg;
        break;
    case 's':
        options.state = optarg;
        break;
    case 'i':
        options.input = number(optarg, ~0ull);
        break;
    case 'c':
        options.calls = number(optarg, 1000000);
        break;
    case 'p':
        options.pause_us = number(optarg, 10000000);
        break;
    case 'r':
        options.cold = true;
        break;
    case 'e':
        options.evict_bytes = number(optarg, 1ull << 32);
        break;
    case 'm':
        options.map = optarg;
        break;
    case 'f':
        options.file = optarg;
        break;
    case 'h':
        fputs(usage, stdout);
        exit(0);
    default:
        refuse();
    }
}

void options_read(int argument_count, char **arguments) {
    int option;

    while ((option = getopt_long(argument_count, arguments, "", names, NULL)) != -1)
        take(option);
    if (!options.backend || !options.object)
        refuse();
    options.event = arguments + optind;
}
