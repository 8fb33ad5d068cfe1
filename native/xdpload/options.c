// SPDX-License-Identifier: Apache-2.0
#include "options.h"
#include "command_line.h"

#include <stdlib.h>
#include <string.h>

#define MODES "none|native|generic|offload|tcx|tc|netkit"

static const char *const mode_names[] = {
    [MODE_NONE] = "none", [MODE_NATIVE] = "native", [MODE_GENERIC] = "generic", [MODE_OFFLOAD] = "offload",
    [MODE_TCX] = "tcx",   [MODE_TC] = "tc",         [MODE_NETKIT] = "netkit"};

const char *mode_name(enum mode mode) { return mode_names[mode]; }

static void add(const struct option_row *row, struct settings *settings, struct setting one) {
    settings->items = reallocarray(settings->items, settings->count + 1, sizeof(*settings->items));
    if (!settings->items)
        command_line_refuse("no memory for --%s", row->name);
    settings->items[settings->count++] = one;
}

static bool add_setting(const struct option_row *row, void *target, const char *text) {
    const char *equals = strchr(text, '=');

    if (!equals || equals == text || !equals[1])
        return false;
    add(row, target, (struct setting){.name = strndup(text, equals - text), .value = equals + 1});
    return true;
}

static bool add_name(const struct option_row *row, void *target, const char *text) {
    add(row, target, (struct setting){.name = text, .value = ""});
    return *text;
}

#define AT(field) offsetof(struct options, field)

static const struct option_row ROWS[] = {
    {"object", "FILE", NULL, option_text, AT(object), 0, 0, "BPF object file"},
    {"section", "NAME", NULL, option_text, AT(section), 0, 0, "take the program in this ELF section (xdp)"},
    {"program", "NAME", NULL, option_text, AT(program), 0, 0, "take the program of this name"},
    {"interface", "IF", NULL, option_text, AT(interface), 0, 0, "network interface to attach to"},
    {"mode", MODES, "native", option_word, AT(mode), 0, 0, "how to attach; none: load without attaching"},
    {"rodata", "NAME=VALUE", NULL, add_setting, AT(rodata), 0, 0,
     "set a constant of the program before it is loaded"},
    {"init", "MAP=FILE", NULL, add_setting, AT(init), 0, 0,
     "fill a map as it is loaded: FILE is one of --entries, or has one value for every index"},
    {"count-actions", NULL, NULL, option_flag, AT(count_actions), 0, 0,
     "count what the program decides, by instructions before it: for `decided`"},
    {"also", "NAME", NULL, add_name, AT(also), 0, 0,
     "load this program of the object too: of its others, none is loaded"},
    {"map", "MAP=KEY=VALUE", NULL, add_setting, AT(map), 0, 0,
     "an entry of a map of programs, devices or CPUs, put in by `fill`: NAME, or device=IF,program=NAME"},
    {"entries", "MAP=FILE", NULL, add_setting, AT(entries), 0, 0,
     "entries of a map of data, put in by `fill`: FILE has all keys, then all values; of a map of maps, see "
     "entries.c"},
    {"keep-pins", NULL, NULL, option_flag, AT(keep_pins), 0, 0,
     "share maps pinned by name in /sys/fs/bpf; without it they are not pinned, and begin empty"},
    {"zero-seed", NULL, NULL, option_flag, AT(zero_seed), 0, 0,
     "hash maps without the kernel's random seed: which keys share a chain is the same in each boot"},
    {"device-bound", NULL, NULL, option_flag, AT(device_bound), 0, 0,
     "load for this interface alone, as its driver's kfuncs for metadata need it"},
    {"tc", NULL, NULL, option_flag, AT(tc), 0, 0,
     "load for tc, not for XDP: in mode none, which does not tell"},
    {"share-maps", "ID,ID,...", NULL, option_text, AT(share_maps), 0, 0,
     "use these maps, in the object's order, and load without attaching: for `exchange` in their owner, or "
     "`attach`"},
    {"max-entries", "MAP=N|cpus", NULL, add_setting, AT(max_entries), 0, 0,
     "resize a map; cpus: one entry per possible CPU"},
};

static const struct command_line LINE = {
    .usage = "--object FILE --interface IF --mode MODE [options]",
    .about =
        "Loads one XDP or tc program, attaches it, and holds it until standard input closes.\n"
        "Prints one JSON object per line, and answers commands from standard input, one per line:\n"
        "testrun FRAME REPEAT RUNS [QUEUE], frames COUNT, outcomes ROUNDS, fresh ROUNDS RUNS, fill, count, "
        "reset, decided, attach, attached, exchange ID, records, bpf_stats on|off, "
        "stats_cost, runstats, dump xlated|jited FILE.",
    .rows = ROWS,
    .row_count = sizeof(ROWS) / sizeof(ROWS[0]),
};

void parse_options(struct options *options, int argc, char **argv) {
    *options = (struct options){};
    command_line_read(&LINE, options, argc, argv);
    if (!options->object)
        command_line_refuse("--object is missing");
    if (options->section && options->program)
        command_line_refuse("--section and --program exclude each other");
    options->tc |= is_tc(options->mode);
    if (options->count_actions && options->tc)
        command_line_refuse("--count-actions counts what XDP defines");
    if (options->mode != MODE_NONE && !options->interface)
        command_line_refuse("--interface is missing; --mode none loads without one");
    if (options->device_bound && !options->interface)
        command_line_refuse("--interface is missing: --device-bound needs one");
}
