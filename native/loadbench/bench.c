// SPDX-License-Identifier: Apache-2.0
#include "bench.h"
#include "clock.h"
#include "graph.h"

#include <unistd.h>

struct bench bench = {.repetitions = 100, .pause_us = 2000, .budget_ms = 60000};

void bench_begin(unsigned int repetition) {
    if (bench.watch == GRAPH)
        graph_begin(repetition);
}

void bench_end(unsigned int repetition) {
    if (bench.watch == GRAPH)
        graph_end(repetition);
}

bool bench_next(unsigned int repetition) {
    static long long start;
    if (!start)
        start = now_ns();
    if (repetition && bench.pause_us)
        usleep(bench.pause_us);
    return repetition < bench.repetitions && now_ns() - start < 1000000LL * bench.budget_ms;
}
