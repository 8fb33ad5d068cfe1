// SPDX-License-Identifier: Apache-2.0
// What is measured, how often, and what is watched meanwhile.
#pragma once

#include <stdbool.h>

#define MOST_REPETITIONS 10000
#define UNKNOWN (-1)

enum watch { NOTHING, LOG, FENTRY, GRAPH };

struct bench {
    unsigned repetitions;
    unsigned pause_us;  // between two: what the last one left to be freed is freed meanwhile
    unsigned budget_ms; // no further repetition once those before have taken so long
    unsigned again;     // further calls of BPF_PROG_LOAD in each, untimed
    unsigned watch;     // enum watch
    const char *trace;  // where function_graph's trace goes
};

extern struct bench bench;

#define UNCOUNTED (~0u) // the repetition of what is loaded beside them

// A system call of the N-th repetition is about to be made, and has been: the place of all tracing. libbpf
// loads programs of its own before it.
void bench_begin(unsigned repetition);
void bench_end(unsigned repetition);

// Whether the budget allows this repetition; pauses before all but the first.
bool bench_next(unsigned repetition);

// Open, load, attach, detach, close, as often as asked. Prints its lines.
void bpf_bench(const char *object);
// init_module(2) and delete_module(2).
void module_bench(const char *object);
// Times a process of this binary that does nothing: the cost of a loader before it loads.
void start_bench(void);
// Times a command, and one after the word `then` that undoes it. Each begins with the path of its program, as
// for execve(2).
void process_bench(char **words);
// Opens and loads an object by libbpf, and nothing else: the smallest loader.
void load_once(const char *object);
