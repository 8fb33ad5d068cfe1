// SPDX-License-Identifier: Apache-2.0
// What the tests of native/common drive: each word of the command line is one call of it.
#include "command_line.h"
#include "fail.h"
#include "json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct options {
    const char *text;
    bool flag;
    unsigned word, number;
    unsigned long long count;
    double seconds;
    struct cpu_list cpus;
};

#define AT(field) offsetof(struct options, field)

static const struct option_row ROWS[] = {
    {"text", "TEXT", NULL, option_text, AT(text), 0, 0, "a text"},
    {"flag", NULL, NULL, option_flag, AT(flag), 0, 0, "a flag"},
    {"word", "one|two|three", "two", option_word, AT(word), 0, 0, "one of three words"},
    {"number", "N", "7", option_unsigned, AT(number), 1, 99, "a number"},
    {"count", "N", "0", option_count, AT(count), 0, 0x1p64, "a count"},
    {"seconds", "S", NULL, option_number, AT(seconds), 0.5, 10, "seconds"},
    {"cpus", "C,C", NULL, option_cpus, AT(cpus), 0, 0, "CPUs"},
};

static const struct command_line LINE = {
    .usage = "options [ARGUMENT]",
    .about = "Prints what it was given.",
    .rows = ROWS,
    .row_count = sizeof(ROWS) / sizeof(ROWS[0]),
    .least_arguments = 1,
    .most_arguments = 2,
};

static void print_options(int count, char **arguments) {
    struct options options = {0};
    int first = command_line_read(&LINE, &options, count, arguments);

    json_begin("options");
    json_string("text", options.text);
    json_bool("flag", options.flag);
    json_count("word", options.word);
    json_count("number", options.number);
    json_count("count", options.count);
    json_number("seconds", options.seconds);
    json_open_array("cpus");
    for (unsigned i = 0; i < options.cpus.count; i++)
        json_count(NULL, options.cpus.cpus[i]);
    json_close();
    json_string("argument", arguments[first + 1]);
    json_end();
}

// Standard input: strings that end with a NUL each; one line for each.
static void print_strings(void) {
    char *text = NULL;
    size_t space = 0;

    while (getdelim(&text, &space, '\0', stdin) > 0) {
        json_begin("string");
        json_string("text", text);
        json_end();
    }
    free(text);
}

static void print_numbers(int count, char **numbers) {
    json_begin("numbers");
    json_open_array("numbers");
    for (int i = 0; i < count; i++)
        json_number(NULL, strtod(numbers[i], NULL));
    json_close();
    json_open_array("decimals");
    for (int i = 0; i < count; i++)
        json_decimal(NULL, strtod(numbers[i], NULL), 3);
    json_close();
    json_end();
}

// An object of everything, an array within an array, and text of so many bytes.
static void print_nested(size_t bytes) {
    char *text = malloc(bytes + 1);

    memset(text, 'x', bytes);
    text[bytes] = '\0';
    json_begin("nested");
    json_open_array("empty");
    json_close();
    json_open_array("rows");
    for (int row = 0; row < 2; row++) {
        json_open_object(NULL);
        json_integer("row", -row);
        json_open_array("pair");
        json_null(NULL);
        json_known(NULL, -1);
        json_known(NULL, row);
        json_close();
        json_close();
    }
    json_close();
    json_string("text", text);
    json_count("most", ~0ull);
    json_end();
    free(text);
}

static void hold(int lines) {
    json_hold();
    for (int i = 0; i < lines; i++) {
        json_begin("held");
        json_integer("line", i);
        json_end();
    }
    fputs("all are made\n", stderr);
    getchar();
}

int main(int count, char **arguments) {
    const char *what = count > 1 ? arguments[1] : "";

    if (!strcmp(what, "strings"))
        print_strings();
    else if (!strcmp(what, "numbers"))
        print_numbers(count - 2, arguments + 2);
    else if (!strcmp(what, "nested"))
        print_nested(strtoul(arguments[2], NULL, 10));
    else if (!strcmp(what, "hold"))
        hold(atoi(arguments[2]));
    else if (!strcmp(what, "unfinished")) {
        json_begin("unfinished");
        json_open_array("never");
        fail("step", 2, "the log", "it ended in the middle of %s", "a line");
    } else if (!strcmp(what, "fail"))
        fail("step", atoi(arguments[2]), arguments[3], "message of %s", arguments[2]);
    else if (!strcmp(what, "failed")) {
        int first = failed("first", 13, "said", "one");
        int second = failed("second", 2, NULL, "two");
        fail_print();
        return first == -13 && second == -13 && failed_before() == -13 ? 0 : 9;
    } else
        print_options(count, arguments);
    return !json_flush();
}
