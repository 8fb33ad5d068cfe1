// SPDX-License-Identifier: Apache-2.0
#include "bench.h"
#include "clock.h"
#include "fentry.h"
#include "graph.h"

#include <unistd.h>

struct bench bench;

void bench_begin(unsigned repetition) {
    if (bench.watch == GRAPH)
        graph_begin(repetition);
    if (bench.watch == FENTRY)
        fentry_begin();
}

void bench_end(unsigned repetition) {
    if (bench.watch == GRAPH)
        graph_end(repetition);
}

bool bench_next(unsigned repetition) {
    static uint64_t start;
    if (!start)
        start = now_ns();
    if (repetition && bench.pause_us)
        usleep(bench.pause_us);
    return repetition < bench.repetitions && now_ns() - start < bench.budget_ms * NS_PER_MS;
}
