// SPDX-License-Identifier: Apache-2.0
#include "options.h"
#include "command_line.h"

struct options options;

#define AT(field) offsetof(struct options, field)

static const struct option_row ROWS[] = {
    {"backend", "NAME", NULL, option_text, AT(backend), 0, 0, "bpf, module, user, own-bpf or own-module"},
    {"benchmark", "NAME", NULL, option_text, AT(benchmark), 0, 0, "of the benchmark"},
    {"object", "FILE", NULL, option_text, AT(object), 0, 0, "BPF object, module or shared object"},
    {"calls", "N", "100", option_unsigned, AT(calls), 0, 1000000, "calls"},
    {"pause-us", "N", "0", option_unsigned, AT(pause_us), 0, 10000000,
     "pause before each call; 0: they follow each other"},
    {"input", "N", "1", option_count, AT(input), 0, 0x1p64,
     "handed to each call: the chain's length, the matrix' seed"},
    {"state", "FILE", NULL, option_text, AT(state), 0, 0, "first contents of the working set (zeros)"},
    {"counted", NULL, NULL, option_flag, AT(counted), 0, 0,
     "in a guest that costplugin watches: call between marks"},
    {"cold", NULL, NULL, option_flag, AT(cold), 0, 0, "load anew before each call"},
    {"evict-bytes", "N", "0", option_count, AT(evict_bytes), 0, 0x1p32,
     "walk through so many bytes before each call"},
    {"map", "NAME", NULL, option_text, AT(map), 0, 0, "own-bpf: where the times are read"},
    {"file", "PATH", NULL, option_text, AT(file), 0, 0, "own-module: where the times are read"},
};

static const struct command_line LINE = {
    .usage = "--backend bpf|module|user --benchmark NAME --object FILE [options]\n"
             "--backend own-bpf --object FILE --map NAME -- COMMAND…\n"
             "--backend own-module --object FILE --file PATH -- COMMAND…",
    .about = "Prints JSON lines. COMMAND triggers what a user's own program or module measures.",
    .rows = ROWS,
    .row_count = sizeof(ROWS) / sizeof(ROWS[0]),
    .most_arguments = -1,
};

void options_read(int argument_count, char **arguments) {
    options.event = arguments + command_line_read(&LINE, &options, argument_count, arguments);
    if (!options.backend || !options.object)
        command_line_refuse("%s is missing", options.backend ? "--object" : "--backend");
    if (!options.benchmark)
        options.benchmark = "";
}
