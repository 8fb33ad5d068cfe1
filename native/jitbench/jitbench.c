// SPDX-License-Identifier: Apache-2.0
// Runs BPF programs and classic filters many times and says how long it took, for `xdplab study jit`.
#include "bench.h"
#include "bpf.h"
#include "command_line.h"
#include "fail.h"
#include "input.h"
#include "json.h"
#include "output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct bench *const BENCHES[] = {&PROGRAMS, &SOCKET_FILTERS, &SECCOMP_FILTERS,
                                              &TRAFFIC,  &TCP_RR,         &TCP_STREAM};
enum { BENCH_COUNT = sizeof(BENCHES) / sizeof(*BENCHES) }; // NOLINT(bugprone-sizeof-expression): of pointers

static char about[2048] =
    "Runs each program or filter TIMES times per round and prints a JSON line on it. WHAT is one of";

static const struct command_line LINE = {
    .usage = "WHAT TIMES ROUNDS < lines of NAME CODE DATA NUMBER [MAP]",
    .about = about,
    .least_arguments = 3,
    .most_arguments = 3,
};

static void tell_benches(void) {
    for (int i = 0; i < BENCH_COUNT; i++)
        snprintf(about + strlen(about), sizeof(about) - strlen(about), "\n  %-10s %s", BENCHES[i]->name,
                 BENCHES[i]->says);
}

static const struct bench *bench_named(const char *name) {
    for (int i = 0; i < BENCH_COUNT; i++)
        if (!strcmp(BENCHES[i]->name, name))
            return BENCHES[i];
    return NULL;
}

static long number_of(const char *name, const char *text, long most) {
    char *end;
    long number = strtol(text, &end, 10);
    if (!*text || *end || number <= 0 || number > most)
        command_line_refuse("%s %s: expected a number from 1 to %ld", name, text, most);
    return number;
}

static void run(const struct bench *bench, const struct rounds *rounds) {
    static struct subject subjects[MOST_SUBJECTS];
    int count = read_subjects(stdin, subjects);
    int compiles = bpf_compiles();
    if (compiles < 0)
        fail("bpf", errno, NULL, "bpf(2): %s", strerror(errno));
    if (measure(bench, subjects, count, rounds))
        fail("begin", errno, NULL, "%s: %s", bench->name, strerror(errno));
    print_kernel(compiles);
    for (int i = 0; i < count; i++)
        print_subject(&subjects[i], rounds);
}

int main(int argc, char **argv) {
    tell_benches();
    char **given = argv + command_line_read(&LINE, NULL, argc, argv);
    const struct bench *bench = bench_named(given[0]);
    if (!bench)
        command_line_refuse("there is no %s", given[0]);
    const struct rounds rounds = {number_of("TIMES", given[1], 1000000000),
                                  number_of("ROUNDS", given[2], MOST_ROUNDS)};
    json_hold();
    run(bench, &rounds);
    return !json_flush();
}
