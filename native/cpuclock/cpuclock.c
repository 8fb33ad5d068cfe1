// SPDX-License-Identifier: Apache-2.0
// cpuclock CPU...: at how many cycles per ns each CPU runs, where no counter of cycles is to be had. A chain
// of additions, each of which needs the one before it, takes one cycle per addition on every CPU that BPF has
// a JIT for. Both operands are registers: newer cores fold additions of constants. Whatever disturbs a slice
// makes it slower, so the fastest slice is the clock: the one that a millisecond of others does not outdo.
#include "clock.h"
#include "command_line.h"
#include "fail.h"
#include "json.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#define ADD                                                                                                  \
    sum += addend;                                                                                           \
    __asm__ volatile("" : "+r"(sum) : "r"(addend));
#define ADD_16 ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD
#define ADD_256                                                                                              \
    ADD_16 ADD_16 ADD_16 ADD_16 ADD_16 ADD_16 ADD_16 ADD_16 ADD_16 ADD_16 ADD_16 ADD_16 ADD_16 ADD_16 ADD_16 \
        ADD_16

enum { ROUNDS = 256, MOST_SLICES = 200, LEAST_SINCE = 50, ADDS = 256 * ROUNDS };
enum { NOTICED = 1000 }; // a slice is faster by at least so small a part of it

static int64_t slice_ns(uint64_t addend) {
    uint64_t sum = 0;
    int64_t start = clock_ns(CLOCK_MONOTONIC_RAW);
    for (int round = 0; round < ROUNDS; round++) {
        ADD_256
    }
    return clock_ns(CLOCK_MONOTONIC_RAW) - start;
}

static int64_t fastest_ns(uint64_t addend) {
    int64_t fastest = slice_ns(addend);
    for (int slice = 1, since = 0; slice < MOST_SLICES && since < LEAST_SINCE; slice++) {
        int64_t took = slice_ns(addend);
        since = took < fastest - fastest / NOTICED ? 0 : since + 1;
        if (took < fastest)
            fastest = took;
    }
    return fastest;
}

static const struct command_line LINE = {
    .usage = "CPU...",
    .about = "Prints one JSON object per CPU: how many additions took how many ns, one cycle each.",
    .least_arguments = 1,
    .most_arguments = -1,
};

static int cpu_named(const char *word) {
    char *end;
    long cpu = strtol(word, &end, 10);
    if (*word == '\0' || *end != '\0' || cpu < 0 || cpu >= CPU_SETSIZE)
        command_line_refuse("%s is not a CPU number", word);
    return cpu;
}

static void measure(int cpu) {
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(cpu, &only);
    if (sched_setaffinity(0, sizeof(only), &only))
        fail("cpus", errno, NULL, "CPU %d is not there, or this process may not use it", cpu);
    json_begin("clock");
    json_integer("cpu", cpu);
    json_integer("adds", ADDS);
    json_integer("ns", fastest_ns(1 + (uint64_t)cpu));
    json_end();
}

int main(int count, char **arguments) {
    for (int i = command_line_read(&LINE, NULL, count, arguments); i < count; i++)
        measure(cpu_named(arguments[i]));
    return !json_flush();
}
