// SPDX-License-Identifier: Apache-2.0
#include "bench.h"
#include "fail.h"
#include "fentry.h"
#include "graph.h"
#include "lines.h"
#include "refusal.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define USAGE_EXIT 2

static const char USAGE[] =
    "usage: loadbench bpf OBJECT [OPTIONS]    open, load, attach, detach: open each time anew\n"
    "       loadbench module FILE.ko [OPTIONS] init_module(2), delete_module(2)\n"
    "       loadbench start [OPTIONS]         a process of this binary that does nothing\n"
    "\n"
    "  --repetitions N   100 by default\n"
    "  --pause-us N      between two, 2000 by default\n"
    "  --budget-ms N     none begins once those before have taken so long; 60000 by default\n"
    "  --again N         further BPF_PROG_LOADs in each, for a sampling profiler\n"
    "  --watch log       have the verifier tell its time\n"
    "  --watch fentry    time bpf_check() and bpf_int_jit_compile() by fentry and fexit\n"
    "  --watch graph     trace by function_graph, into --trace FILE\n"
    "  --trace FILE\n"
    "\n"
    "Prints one JSON line per repetition, nanoseconds of CLOCK_MONOTONIC; one line of type \"error\" where "
    "it "
    "fails.\n";

static const char BPF_FUNCTIONS[] = "bpf_check,bpf_int_jit_compile";
static const char MODULE_FUNCTIONS[] = "load_module,do_init_module,do_one_initcall";

static struct mode {
    const char *name;
    void (*run)(const char *object);
    const char *functions;
} MODES[] = {{"bpf", bpf_bench, BPF_FUNCTIONS}, {"module", module_bench, MODULE_FUNCTIONS}};

__attribute__((noreturn)) static void refuse(const char *what, const char *value) {
    fprintf(stderr, "loadbench: %s: %s (--help tells more)\n", what, value);
    exit(USAGE_EXIT);
}

static unsigned int number(const char *option, const char *value, unsigned long most) {
    char *end;
    unsigned long found = strtoul(value, &end, 10);
    if (!*value || *end || *value == '-' || found > most)
        refuse(option, value);
    return found;
}

static enum watch watch_of(const char *word) {
    static const char *const WORDS[] = {[LOG] = "log", [GRAPH] = "graph", [FENTRY] = "fentry"};
    for (int watch = LOG; watch <= FENTRY; watch++)
        if (!strcmp(word, WORDS[watch]))
            return watch;
    refuse("--watch", word);
}

static void read_options(int count, char **arguments) {
    static const struct option OPTIONS[] = {
        {"repetitions", required_argument, NULL, 'n'},
        {"pause-us", required_argument, NULL, 'p'},
        {"watch", required_argument, NULL, 'w'},
        {"trace", required_argument, NULL, 't'},

        {"budget-ms", required_argument, NULL, 'b'},
        {"again", required_argument, NULL, 'a'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int found;
    while ((found = getopt_long(count, arguments, "h", OPTIONS, NULL)) != -1) {
        if (found == 'n')
            bench.repetitions = number("--repetitions", optarg, MOST_REPETITIONS);
        else if (found == 'p')
            bench.pause_us = number("--pause-us", optarg, 1000000);
        else if (found == 'b')
            bench.budget_ms = number("--budget-ms", optarg, 3600000);
        else if (found == 'a')
            bench.again = number("--again", optarg, 1000000);
        else if (found == 'w')
            bench.watch = watch_of(optarg);
        else if (found == 't')
            bench.trace = optarg;
        else
            exit(found == 'h' && fputs(USAGE, stdout) >= 0 ? 0 : USAGE_EXIT);
    }
    if (bench.watch == GRAPH && !bench.trace)
        refuse("--watch graph", "needs --trace FILE");
}

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

// Without it the output was cut.
static int end(void) {
    line_begin("end");
    line_end();
    return 0;
}

int main(int count, char **arguments) {
    const char *word = count > 1 ? arguments[1] : "";
    if (!strcmp(word, "nothing"))
        return 0;
    read_options(count, arguments);
    if (!strcmp(word, "start")) {
        start_bench();
        return end();
    }
    for (size_t i = 0; i < sizeof(MODES) / sizeof(*MODES); i++)
        if (!strcmp(word, MODES[i].name) && optind + 2 == count) {
            run(&MODES[i], arguments[optind + 1]);
            return end();
        }
    refuse("say bpf OBJECT, module FILE.ko or start", word);
}
