// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "options.h"
#include "socket.h"

#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    struct option option;
    const char *argument;
    const char *help;
} table[] = {
    {{"interface", required_argument, NULL, 'i'}, "IF", "network interface to forward on"},
    {{"queues", required_argument, NULL, 'q'}, "Q", "serve queues 0 to Q-1, a socket and a thread each (1)"},
    {{"attach", required_argument, NULL, 'a'}, "MODE", "attach the XDP program native or generic (native)"},
    {{"bind", required_argument, NULL, 'b'}, "HOW", "bind the sockets with copy or zerocopy (copy)"},
    {{"workload", required_argument, NULL, 'w'},
     "FILE",
     "shared object with xdplab_workload, called per frame"},
    {{"init", required_argument, NULL, 'f'},
     "FILE",
     "initial state: one for all queues, or one after another"},
    {{"cpus", required_argument, NULL, 'c'},
     "LIST",
     "pin queue i to the i-th of these CPUs (all allowed ones)"},
    {{"fifo", required_argument, NULL, 'p'}, "PRIO", "run the threads SCHED_FIFO at this priority, 1 to 99"},
    {{"batch", required_argument, NULL, 'n'}, "N", "frames taken from the ring at a time (64)"},
    {{"busy", no_argument, NULL, 's'}, "", "spin instead of sleeping in poll()"},
    {{"help", no_argument, NULL, 'h'}, "", "print this"},
};

#define OPTIONS (sizeof(table) / sizeof(table[0]))

static void print_help(void) {
    printf(
        "usage: afxdp_user --interface IF --workload FILE [options]\n\n"
        "Receives every frame of some queues by AF_XDP, runs the workload on it (which swaps the MACs) and\n"
        "sends it back by the same queue. Prints one JSON object a line; the command `stats` on standard "
        "input\n"
        "prints the counters, its end ends the program and detaches everything.\n\n");
    for (size_t i = 0; i < OPTIONS; i++)
        printf("  --%-10s %-5s %s\n", table[i].option.name, table[i].argument, table[i].help);
}

__attribute__((noreturn)) static void usage_error(const char *what, const char *which) {
    fprintf(stderr, "afxdp_user: %s%s (see --help)\n", what, which);
    exit(2);
}

static unsigned int number(const char *what, const char *text, unsigned int least, unsigned int most) {
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (errno || *end || end == text || *text == '-' || value < least || value > most) {
        fprintf(stderr, "afxdp_user: --%s is a number from %u to %u, not %s (see --help)\n", what, least,
                most, text);
        exit(2);
    }
    return value;
}

// True for the first word, false for the second.
static bool either(const char *text, const char *yes, const char *no) {
    if (strcmp(text, yes) && strcmp(text, no)) {
        fprintf(stderr, "afxdp_user: %s or %s is wanted, not %s (see --help)\n", yes, no, text);
        exit(2);
    }
    return !strcmp(text, yes);
}

static void parse_cpus(struct options *options, char *list) {
    for (char *word = strtok(list, ","); word; word = strtok(NULL, ",")) {
        if (options->cpu_count == MAX_QUEUES)
            usage_error("--cpus names too many CPUs", "");
        options->cpus[options->cpu_count++] = number("cpus", word, 0, CPU_SETSIZE - 1);
    }
}

static void allowed_cpus(struct options *options) {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    sched_getaffinity(0, sizeof(allowed), &allowed);
    for (unsigned int cpu = 0; cpu < CPU_SETSIZE && options->cpu_count < MAX_QUEUES; cpu++)
        if (CPU_ISSET(cpu, &allowed))
            options->cpus[options->cpu_count++] = cpu;
}

static void apply(struct options *options, int letter) {
    switch (letter) {
    case 'i':
        options->interface = optarg;
        break;
    case 'q':
        options->queues = number("queues", optarg, 1, MAX_QUEUES);
        break;
    case 'a':
        options->native = either(optarg, "native", "generic");
        break;
    case 'b':
        options->zerocopy = either(optarg, "zerocopy", "copy");
        break;
    case 'w':
        options->workload = optarg;
        break;
    case 'f':
        options->init = optarg;
        break;
    case 'c':
        parse_cpus(options, optarg);
        break;
    case 'p':
        options->fifo = number("fifo", optarg, 1, 99);
        break;
    case 'n':
        options->batch = number("batch", optarg, 1, FRAMES);
        break;
    case 's':
        options->busy = true;
        break;
    case 'h':
        print_help();
        exit(0);
    default:
        exit(2); // getopt_long has said why
    }
}

void parse_options(struct options *options, int argc, char **argv) {
    struct option long_options[OPTIONS + 1] = {};
    for (size_t i = 0; i < OPTIONS; i++)
        long_options[i] = table[i].option;

    *options = (struct options){.queues = 1, .native = true, .batch = 64};
    for (int letter; (letter = getopt_long(argc, argv, "", long_options, NULL)) != -1;)
        apply(options, letter);
    if (optind < argc)
        usage_error("unexpected argument ", argv[optind]);
    if (!options->interface || !options->workload)
        usage_error(options->interface ? "--workload" : "--interface", " is missing");
    if (!options->cpu_count)
        allowed_cpus(options);
}
