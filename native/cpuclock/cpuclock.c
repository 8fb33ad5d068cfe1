// SPDX-License-Identifier: Apache-2.0
/*
 * cpuclock CPU...: at how many cycles per ns each CPU runs, where no counter of cycles is to be had. A chain
 * of additions, each of which needs the one before it, takes one cycle per addition on every CPU that BPF has
 * a JIT for. Both operands are registers: newer cores fold additions of constants. Whatever disturbs a slice
 * makes it slower, so the fastest slice is the clock.
 */
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ADD                                                                                                  \
    sum += addend;                                                                                           \
    __asm__ volatile("" : "+r"(sum) : "r"(addend));
#define ADD_16 ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD
#define ADD_256                                                                                              \
    ADD_16 ADD_16 ADD_16 ADD_16 ADD_16 ADD_16 ADD_16 ADD_16 ADD_16 ADD_16 ADD_16 ADD_16 ADD_16 ADD_16 ADD_16 \
        ADD_16

enum { ROUNDS = 256, SLICES = 200, ADDS = 256 * ROUNDS };

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_RAW, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static int64_t slice_ns(uint64_t addend) {
    uint64_t sum = 0;
    int64_t start = now_ns();
    for (int round = 0; round < ROUNDS; round++) {
        ADD_256
    }
    return now_ns() - start;
}

static int64_t fastest_ns(uint64_t addend) {
    int64_t fastest = INT64_MAX;
    for (int slice = 0; slice < SLICES; slice++) {
        int64_t took = slice_ns(addend);
        if (took < fastest)
            fastest = took;
    }
    return fastest;
}

static int measure(const char *word) {
    char *end;
    long cpu = strtol(word, &end, 10);
    if (*word == '\0' || *end != '\0' || cpu < 0 || cpu >= CPU_SETSIZE) {
        fprintf(stderr, "cpuclock: %s is no CPU\n", word);
        return 1;
    }
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(cpu, &only);
    if (sched_setaffinity(0, sizeof(only), &only)) {
        perror("cpuclock: sched_setaffinity");
        return 1;
    }
    printf("{\"cpu\":%ld,\"adds\":%d,\"ns\":%lld}\n", cpu, ADDS, (long long)fastest_ns(1 + (uint64_t)cpu));
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: cpuclock CPU...\n");
        return 2;
    }
    for (int i = 1; i < argc; i++)
        if (measure(argv[i]))
            return 1;
    return 0;
}
