// SPDX-License-Identifier: Apache-2.0
// What is learnt of one program, and its JSON line.
#pragma once

#include <linux/bpf.h>
#include <stddef.h>

#define MOST_LOADS 1000
#define LOG_BYTES 65536
#define UNKNOWN (-1)

enum verdict { ACCEPTED, REJECTED, COMPLEXITY, ENVIRONMENT, NO_TYPE, LOADER, VERDICTS };

struct record {
    const char *object;
    const char *section;
    const char *name;
    const char *loader;   // "libbpf" or "raw"
    const char *compiler; // that the object names, or NULL
    unsigned program_type;
    size_t insns; // as handed to the kernel; 0 where it did not come to that
    unsigned long long hash;
    enum verdict verdict;
    const char *cause; // in words, NULL where accepted
    int error;         // errno of BPF_PROG_LOAD
    size_t loads;
    long long load_ns[MOST_LOADS];   // BPF_PROG_LOAD alone
    long long verify_us[MOST_LOADS]; // of the same load, in the kernel's own words; UNKNOWN without any
    char log[LOG_BYTES];             // of the last load
    char words[1024];                // the loader's own, or libbpf's
    long long xlated_bytes, jited_bytes, verified_insns;
    // Of a load with a log of each step; UNKNOWN where there was none. A log that is full keeps its end, and
    // steps_true_bytes (with the final NUL) says how long it would be; then a second load kept the beginning.
    // Before 6.4 it keeps its beginning, and nothing says how long it would be.
    long long steps_bytes, steps_full, steps_true_bytes, steps_first_bytes;
    // Of one load with watching on; UNKNOWN with a reason otherwise.
    long long kmalloc_peak_bytes, peak_bytes, cgroup_peak_bytes, branches;
    const char *kmalloc_reason, *peak_reason, *cgroup_reason, *branches_reason;
};

// The compiler of the object whose programs come next.
void record_compiler(const char *compiler);

// An empty record of one of them; call before any other field is set.
void record_begin(struct record *record, const char *object, const char *loader);
void record_print(const struct record *record);

// The line of an object of which no program can even be named.
void record_print_object(const char *object, const char *message);

const char *verdict_name(enum verdict verdict);
