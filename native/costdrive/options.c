// SPDX-License-Identifier: Apache-2.0
#include "options.h"
#include "command_line.h"

#include <stddef.h>
#include <stdint.h>

#define AT(field) offsetof(struct options, field)

static const struct option_row ROWS[] = {
    {"program", "ID", NULL, option_unsigned, AT(program), 1, 1 << 30, "the program that is counted"},
    {"way", "live|packets|test_run", "live", option_word, AT(way), 0, 0,
     "live frames of a sender's program, packets of a socket, or a test run"},
    {"gro", NULL, NULL, option_flag, AT(gro), 0, 0,
     "live frames for a program in generic mode: switch GRO on"},
    {"anew", NULL, NULL, option_flag, AT(anew), 0, 0,
     "live frames for a program that changes their length or metadata: describe each one anew"},
    {"device-bound", NULL, NULL, option_flag, AT(device_bound), 0, 0,
     "the program is bound to its device: no test run tells how many instructions it has"},
    {"dut", "IF", "dut", option_text, AT(dut), 0, 0, "the program's interface"},
    {"tg", "IF", "tg", option_text, AT(tg), 0, 0, "the sender's interface, its other end"},
    {"frames", "FILE", NULL, option_text, AT(frames), 0, 0,
     "the frames sent in turn: one in each line, in hexadecimal, without FCS"},
    {"window", "N", "256", option_unsigned, AT(window), 1, 1 << 16,
     "frames of a window, halved for a program of many instructions; another has twice as many"},
    {"application", "PID", NULL, option_unsigned, AT(application), 1, 1 << 30,
     "the process that takes the program's frames and sends them back: its instructions count"},
    {"root", "N", NULL, option_count, AT(root), 1, UINT64_MAX,
     "the address of the kernel's function below which frames are sent"},
    {"rounds", "N", "9", option_unsigned, AT(rounds), 1, 1000, "how often each window is counted"},
};

static const struct command_line LINE = {
    .usage = "--program ID --frames FILE --root N [options]",
    .about = "In a guest that costplugin watches: sends frames to a loaded program between marks.\n"
             "Prints one JSON object per window, and what each loaded program is made of.",
    .rows = ROWS,
    .row_count = sizeof(ROWS) / sizeof(ROWS[0]),
};

void parse_options(struct options *options, int argc, char **argv) {
    *options = (struct options){};
    command_line_read(&LINE, options, argc, argv);
    if (!options->program || !options->frames || !options->root)
        command_line_refuse("--program, --frames or --root is missing");
}
