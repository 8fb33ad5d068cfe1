// SPDX-License-Identifier: Apache-2.0
#include "command_line.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define USAGE_EXIT 2
#define HELP_COLUMN 28
#define LARGEST_EXACT 9007199254740992.0 // 2^53: up to here a double is a whole number without doubt

// ---- values ----

bool option_text(const struct option_row *row, void *target, const char *text) {
    (void)row;
    *(const char **)target = text;
    return *text;
}

bool option_flag(const struct option_row *row, void *target, const char *text) {
    (void)row, (void)text;
    return *(bool *)target = true;
}

bool option_word(const struct option_row *row, void *target, const char *text) {
    size_t length = strlen(text);
    unsigned which = 0;

    for (const char *word = row->argument; word; which++) {
        const char *end = strchrnul(word, '|');
        if (length == (size_t)(end - word) && !strncmp(word, text, length)) {
            *(unsigned *)target = which;
            return true;
        }
        word = *end ? end + 1 : NULL;
    }
    return false;
}

bool option_number(const struct option_row *row, void *target, const char *text) {
    char *end;
    double number = strtod(text, &end);

    *(double *)target = number;
    return end != text && !*end && number >= row->least && number <= row->most;
}

// Decimal digits, of any size; 1e6 is a count too.
bool option_count(const struct option_row *row, void *target, const char *text) {
    unsigned long long count;
    double number;
    char *end;

    errno = 0;
    count = strtoull(text, &end, 10);
    if (*end) {
        if (!option_number(row, &number, text) || number > LARGEST_EXACT)
            return false;
        count = number;
        if (number != count)
            return false;
    }
    *(unsigned long long *)target = count;
    return isdigit((unsigned char)*text) && !errno && count >= row->least && count <= row->most;
}

bool option_unsigned(const struct option_row *row, void *target, const char *text) {
    unsigned long long count;

    if (!option_count(row, &count, text))
        return false;
    *(unsigned *)target = count;
    return true;
}

bool option_cpus(const struct option_row *row, void *target, const char *text) {
    struct cpu_list *list = target;
    char *end = (char *)text - 1;

    (void)row;
    list->count = 0;
    do {
        const char *start = end + 1;
        unsigned long cpu = strtoul(start, &end, 10);
        if (!isdigit((unsigned char)*start) || cpu >= CPU_SETSIZE || list->count == MOST_CPUS)
            return false;
        list->cpus[list->count++] = cpu;
    } while (*end == ',');
    return !*end;
}

// ---- the table ----

void command_line_refuse(const char *format, ...) {
    va_list arguments;

    fprintf(stderr, "%s: ", program_invocation_short_name);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputs(" (see --help)\n", stderr);
    exit(USAGE_EXIT);
}

static void print_row(const struct option_row *row) {
    int width = printf("  --%s %s", row->name, row->argument ? row->argument : "");

    if (width >= HELP_COLUMN)
        width = printf("\n") - 1;
    printf("%*s%s", HELP_COLUMN - width, "", row->help);
    if (row->most)
        printf(" (%.10g to %.10g)", row->least, row->most);
    printf(row->initially ? " [%s]\n" : "\n", row->initially);
}

__attribute__((noreturn)) static void print_help(const struct command_line *line) {
    const char *before = "usage:";

    for (const char *way = line->usage; way; before = "      ") {
        int length = strcspn(way, "\n");
        printf("%s %s %.*s\n", before, program_invocation_short_name, length, way);
        way = way[length] ? way + length + 1 : NULL;
    }
    printf("\n%s\n\n", line->about);
    for (size_t i = 0; i < line->row_count; i++)
        print_row(&line->rows[i]);
    print_row(&(struct option_row){.name = "help", .help = "print this"});
    exit(0);
}

static void take(const struct option_row *row, void *options, const char *text) {
    if (row->read(row, (char *)options + row->offset, text))
        return;
    if (row->most)
        command_line_refuse("--%s %s: expected %s from %.10g to %.10g", row->name, text, row->argument,
                            row->least, row->most);
    command_line_refuse("--%s %s: expected %s", row->name, text, row->argument);
}

static void check_arguments(const struct command_line *line, int count, char **arguments) {
    int given = count - optind;

    if (line->most_arguments >= 0 && given > line->most_arguments)
        command_line_refuse("unexpected argument %s", arguments[optind + line->most_arguments]);
    if (given < line->least_arguments)
        command_line_refuse("an argument is missing: %.*s", (int)strcspn(line->usage, "\n"), line->usage);
}

int command_line_read(const struct command_line *line, void *options, int count, char **arguments) {
    struct option known[line->row_count + 2];
    int index, found;

    memset(known, 0, sizeof(known));
    for (size_t i = 0; i < line->row_count; i++) {
        const struct option_row *row = &line->rows[i];
        known[i] = (struct option){row->name, row->argument ? required_argument : no_argument, NULL, 0};
        if (row->initially)
            take(row, options, row->initially);
    }
    known[line->row_count] = (struct option){"help", no_argument, NULL, 'h'};
    while ((found = getopt_long(count, arguments, "h", known, &index)) >= 0) {
        if (found == 'h')
            print_help(line);
        if (found)
            exit(USAGE_EXIT); // getopt_long has said why
        take(&line->rows[index], options, optarg);
    }
    check_arguments(line, count, arguments);
    return optind;
}
