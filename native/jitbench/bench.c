// SPDX-License-Identifier: Apache-2.0
#include "bench.h"
#include "clock.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

long long batch_ns;

int blame(struct subject *subject, const char *what) {
    subject->error = errno;
    subject->failed = what;
    return -1;
}

int time_loop(struct subject *subject, long times, int (*once)(struct subject *subject)) {
    uint64_t began = now_ns();
    for (long i = 0; i < times; i++)
        if (once(subject))
            return -1;
    batch_ns = now_ns() - began;
    return 0;
}

// The verdict has to be the same in every round.
static void one_round(const struct bench *bench, struct subject *subject, long times, long round) {
    long long before = subject->verdict;
    if (bench->batch(subject, times))
        return;
    if (round >= 0)
        subject->ns[round] = batch_ns;
    if (round > 0 && subject->verdict != before) {
        errno = 0;
        blame(subject, "its verdict changes from round to round");
    }
}

static void all_rounds(const struct bench *bench, struct subject *subjects, size_t count,
                       const struct rounds *rounds) {
    for (long round = -1; round < rounds->rounds; round++) // the first one warms up
        for (size_t i = 0; i < count; i++)
            if (!subjects[i].failed)
                one_round(bench, &subjects[i], rounds->times, round);
}

int measure(const struct bench *bench, struct subject *subjects, size_t count, const struct rounds *rounds) {
    if (bench->begin && bench->begin())
        return -1;
    for (size_t i = 0; i < count; i++) {
        subjects[i].fd = subjects[i].peer = subjects[i].tap = -1;
        subjects[i].xlated = subjects[i].jited = subjects[i].passed = -1;
        subjects[i].insns = subjects[i].code_bytes / 8;
        subjects[i].ns = calloc(rounds->rounds, sizeof(long long));
        if (!subjects[i].ns)
            return -1;
        bench->open(&subjects[i]);
    }
    all_rounds(bench, subjects, count, rounds);
    for (size_t i = 0; i < count; i++)
        bench->close(&subjects[i]);
    return 0;
}
