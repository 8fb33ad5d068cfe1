// SPDX-License-Identifier: Apache-2.0
// A tool's command line: one table of options gives its parser, its defaults and its help. (glibc's argp
// knows no types, ranges or defaults; a table of these would stand beside argp's own.)
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct option_row {
    const char *name;
    const char *argument;  // what its value is called; NULL: a flag
    const char *initially; // its default, read like a value; NULL: nothing is set
    bool (*read)(const struct option_row *row, void *target, const char *text); // false: not such a value
    size_t offset;      // of the target in the options
    double least, most; // of a number
    const char *help;
};

struct command_line {
    const char *usage; // what follows the tool's name, a line for each way to call it
    const char *about;
    const struct option_row *rows;
    size_t row_count;
    int least_arguments, most_arguments; // those that are no options; most < 0: any number
};

// Fills the options, which must be zero, and returns the index of the first argument that is not an option.
// Or prints help and exits with 0, or prints one error line and exits with 2.
int command_line_read(const struct command_line *line, void *options, int count, char **arguments);

// Says what is wrong with the command line and exits with 2.
__attribute__((noreturn, format(printf, 1, 2))) void command_line_refuse(const char *format, ...);

// Readers of values, each with the type of its target.
bool option_text(const struct option_row *row, void *target, const char *text); // const char *; not ""
bool option_flag(const struct option_row *row, void *target, const char *text); // bool
bool option_word(const struct option_row *row, void *target,
                 const char *text); // unsigned: which of A|B|C
bool option_unsigned(const struct option_row *row, void *target, const char *text); // unsigned
bool option_count(const struct option_row *row, void *target, const char *text);    // unsigned long long
bool option_number(const struct option_row *row, void *target, const char *text);   // double

#define MOST_CPUS 64

struct cpu_list {
    unsigned count;
    unsigned cpus[MOST_CPUS];
};

bool option_cpus(const struct option_row *row, void *target, const char *text); // struct cpu_list: 0,2,3
