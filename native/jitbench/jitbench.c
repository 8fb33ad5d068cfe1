// SPDX-License-Identifier: Apache-2.0
// Runs BPF programs and classic filters many times and says how long it took, for `xdplab study jit`.
#include "bench.h"
#include "bpf.h"
#include "input.h"
#include "output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct bench *const BENCHES[] = {&PROGRAMS, &SOCKET_FILTERS, &SECCOMP_FILTERS, &TRAFFIC};
enum { BENCH_COUNT = sizeof(BENCHES) / sizeof(*BENCHES) };

static int usage(void) {
    fprintf(stderr, "usage: jitbench WHAT TIMES ROUNDS < lines of NAME CODE DATA NUMBER\n");
    for (int i = 0; i < BENCH_COUNT; i++)
        fprintf(stderr, "  %-9s %s\n", BENCHES[i]->name, BENCHES[i]->says);
    return 2;
}

static const struct bench *bench_named(const char *name) {
    for (int i = 0; i < BENCH_COUNT; i++)
        if (!strcmp(BENCHES[i]->name, name))
            return BENCHES[i];
    return NULL;
}

static long number_of(const char *text, long most) {
    char *end;
    long number = strtol(text, &end, 10);
    return *text && !*end && number > 0 && number <= most ? number : -1;
}

static int run(const struct bench *bench, const struct rounds *rounds) {
    static struct subject subjects[MOST_SUBJECTS];
    int count = read_subjects(stdin, subjects);
    if (count < 0)
        return 2;
    int compiles = bpf_compiles();
    if (compiles < 0 || measure(bench, subjects, count, rounds)) {
        perror(compiles < 0 ? "jitbench: bpf" : "jitbench");
        return 1;
    }
    print_kernel(compiles);
    for (int i = 0; i < count; i++)
        print_subject(&subjects[i], rounds);
    return 0;
}

int main(int argc, char **argv) {
    const struct bench *bench = argc == 4 ? bench_named(argv[1]) : NULL;
    if (!bench)
        return usage();
    const struct rounds rounds = {number_of(argv[2], 1000000000), number_of(argv[3], MOST_ROUNDS)};
    if (rounds.times < 0 || rounds.rounds < 0)
        return usage();
    return run(bench, &rounds);
}
