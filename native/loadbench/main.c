// SPDX-License-Identifier: Apache-2.0
#include "bench.h"
#include "command_line.h"
#include "fentry.h"
#include "graph.h"
#include "json.h"
#include "refusal.h"

#include <string.h>

static const char BPF_FUNCTIONS[] = "bpf_check,bpf_int_jit_compile";
static const char MODULE_FUNCTIONS[] = "load_module,do_init_module,do_one_initcall";

static struct mode {
    const char *name;
    void (*run)(const char *object);
    const char *functions;
} MODES[] = {{"bpf", bpf_bench, BPF_FUNCTIONS}, {"module", module_bench, MODULE_FUNCTIONS}};

#define AT(field) offsetof(struct bench, field)

static const struct option_row ROWS[] = {
    {"repetitions", "N", "100", option_unsigned, AT(repetitions), 0, MOST_REPETITIONS, "how often"},
    {"pause-us", "N", "2000", option_unsigned, AT(pause_us), 0, 1000000, "between two"},
    {"budget-ms", "N", "60000", option_unsigned, AT(budget_ms), 0, 3600000,
     "none begins once those before have taken so long"},
    {"again", "N", "0", option_unsigned, AT(again), 0, 1000000,
     "further BPF_PROG_LOADs in each, for a sampling profiler"},
    {"watch", "nothing|log|fentry|graph", "nothing", option_word, AT(watch), 0, 0,
     "log: have the verifier tell its time; fentry: time bpf_check() and bpf_int_jit_compile() by fentry and "
     "fexit; "
     "graph: trace by function_graph, into --trace FILE"},
    {"trace", "FILE", NULL, option_text, AT(trace), 0, 0, "where function_graph's trace goes"},
};

static const struct command_line LINE = {
    .usage = "bpf OBJECT [options]\nmodule FILE.ko [options]\nstart [options]\n"
             "[options] process PATH ARGUMENT ... [then PATH ARGUMENT ...]\nloader OBJECT",
    .about =
        "bpf: open, load, attach, detach; open each time anew. module: init_module(2), delete_module(2).\n"
        "start: a process of this binary that does nothing. process: a command, and one that undoes it.\n"
        "loader: open and load once, and print nothing.\n"
        "Prints one JSON line per repetition, nanoseconds of CLOCK_MONOTONIC; one line of type \"error\" "
        "where "
        "it "
        "fails.",
    .rows = ROWS,
    .row_count = sizeof(ROWS) / sizeof(ROWS[0]),
    .least_arguments = 1,
    .most_arguments = -1,
};

static void run(const struct mode *mode, const char *object) {
    refusal_collect();
    if (bench.watch == GRAPH)
        graph_arm(mode->functions);
    if (bench.watch == FENTRY)
        fentry_arm();
    mode->run(object);
    if (bench.watch == GRAPH)
        graph_finish(bench.trace);
}

// Without it the output was truncated.
static int end(void) {
    json_begin("end");
    json_end();
    return !json_flush();
}

int main(int count, char **arguments) {
    if (count > 1 && !strcmp(arguments[1], "nothing"))
        return 0;
    int first = command_line_read(&LINE, &bench, count, arguments);
    const char *word = arguments[first];
    if (bench.watch == GRAPH && !bench.trace)
        command_line_refuse("--watch graph needs --trace FILE");
    json_hold(); // who reads along must not run while something is measured
    if (!strcmp(word, "start") && first + 1 == count) {
        start_bench();
        return end();
    }
    if (!strcmp(word, "process") && first + 1 < count) {
        process_bench(arguments + first + 1);
        return end();
    }
    if (!strcmp(word, "loader") && first + 2 == count) {
        load_once(arguments[first + 1]);
        return 0;
    }
    for (size_t i = 0; i < sizeof(MODES) / sizeof(*MODES); i++)
        if (!strcmp(word, MODES[i].name) && first + 2 == count) {
            run(&MODES[i], arguments[first + 1]);
            return end();
        }
    command_line_refuse("%s: say bpf OBJECT, module FILE.ko, start, process PATH or loader OBJECT", word);
}
