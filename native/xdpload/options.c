// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const mode_names[] = {
    [MODE_NONE] = "none", [MODE_NATIVE] = "native", [MODE_GENERIC] = "generic", [MODE_OFFLOAD] = "offload"};

static const struct {
    struct option option;
    const char *argument;
    const char *help;
} table[] = {
    {{"object", required_argument, NULL, 'o'}, "FILE", "BPF object file"},
    {{"section", required_argument, NULL, 's'}, "NAME", "take the program in this ELF section (xdp)"},
    {{"program", required_argument, NULL, 'p'}, "NAME", "take the program of this name"},
    {{"interface", required_argument, NULL, 'i'}, "IF", "network interface to attach to"},
    {{"mode", required_argument, NULL, 'm'},
     "MODE",
     "native, generic, offload, or none: load without attaching"},
    {{"rodata", required_argument, NULL, 'r'},
     "NAME=VALUE",
     "set a constant of the program before it is loaded"},
    {{"init", required_argument, NULL, 'f'},
     "MAP=FILE",
     "fill an array or hash map: FILE holds one value, or one for every entry"},
    {{"max-entries", required_argument, NULL, 'e'},
     "MAP=N|cpus",
     "resize a map; cpus: one entry per possible CPU"},
    {{"count-actions", no_argument, NULL, 'c'},
     "",
     "count what the program decides, by instructions before it: for `decided`"},
    {{"help", no_argument, NULL, 'h'}, "", "print this"},
};

#define OPTIONS (sizeof(table) / sizeof(table[0]))

const char *mode_name(enum mode mode) { return mode_names[mode]; }

static void print_help(void) {
    printf("usage: xdpload --object FILE --interface IF --mode MODE [options]\n\n"
           "Loads one XDP program, attaches it, and holds it until standard input closes.\n"
           "Prints one JSON object a line, and answers commands from standard input, one a line:\n"
           "testrun FRAME REPEAT RUNS, count, reset, decided, bpf_stats on|off, stats_cost, runstats, dump "
           "xlated|jited "
           "FILE.\n\n");
    for (size_t i = 0; i < OPTIONS; i++)
        printf("  --%-12s %-11s %s\n", table[i].option.name, table[i].argument, table[i].help);
}

__attribute__((noreturn)) static void usage_error(const char *what, const char *which) {
    fprintf(stderr, "xdpload: %s%s (see --help)\n", what, which);
    exit(2);
}

static enum mode parse_mode(const char *text) {
    for (size_t i = 0; i < sizeof(mode_names) / sizeof(mode_names[0]); i++)
        if (!strcmp(text, mode_names[i]))
            return i;
    usage_error("--mode is native, generic, offload or none, not ", text);
}

static void add_setting(struct settings *settings, char *text) {
    char *equals = strchr(text, '=');
    if (!equals || equals == text || !equals[1])
        usage_error("NAME=VALUE is wanted, not ", text);
    settings->items = realloc(settings->items, (settings->count + 1) * sizeof(*settings->items));
    if (!settings->items)
        usage_error("out of memory", "");
    *equals = '\0';
    settings->items[settings->count++] = (struct setting){.name = text, .value = equals + 1};
}

static void check(const struct options *options) {
    if (!options->object)
        usage_error("--object is missing", "");
    if (options->section && options->program)
        usage_error("--section and --program exclude each other", "");
    if (options->mode != MODE_NONE && !options->interface)
        usage_error("--interface is missing; --mode none loads without one", "");
}

static void apply(struct options *options, int letter) {
    switch (letter) {
    case 'o':
        options->object = optarg;
        break;
    case 's':
        options->section = optarg;
        break;
    case 'p':
        options->program = optarg;
        break;
    case 'i':
        options->interface = optarg;
        break;
    case 'm':
        options->mode = parse_mode(optarg);
        break;
    case 'r':
        add_setting(&options->rodata, optarg);
        break;
    case 'f':
        add_setting(&options->init, optarg);
        break;
    case 'e':
        add_setting(&options->max_entries, optarg);
        break;
    case 'c':
        options->count_actions = true;
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

    *options = (struct options){.mode = MODE_NATIVE};
    for (int letter; (letter = getopt_long(argc, argv, "", long_options, NULL)) != -1;)
        apply(options, letter);
    if (optind < argc)
        usage_error("unexpected argument ", argv[optind]);
    check(options);
}
