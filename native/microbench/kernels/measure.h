// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// The clock right before and right after the work: one text for all backends.
#ifndef MICROBENCH_MEASURE_H
#define MICROBENCH_MEASURE_H

// What the work reads must look as if it came from the clock, or the compiler may begin early.
#define AFTER(clock, input) __asm__ volatile("" : "+r"(input) : "r"(clock) : "memory")
// What the work made must be there, in registers and in memory, before the clock is read again.
#define BEFORE(result) __asm__ volatile("" : "+r"(result) : : "memory")

// A kernel that is executed several times between the clocks says so in front of its text.
#ifdef EXECUTIONS
static __always_inline __u64 repeated(struct working_set *set, void *data, void *data_end, __u64 input) {
    __u64 last = 0;

    NO_UNROLL
    for (int i = 0; i < EXECUTIONS; i++) {
        KEEP(input); // or an execution that gives the same again could be left out
        last = kernel(set, data, data_end, input);
        BEFORE(last);
    }
    return last;
}
#define kernel repeated
#endif

static __always_inline void measure(struct bench_record *record, struct working_set *set, void *data,
                                    void *data_end) {
    __u64 input = record->input, begin, result;

    begin = CLOCK();
    AFTER(begin, input);
    result = kernel(set, data, data_end, input);
    BEFORE(result);
    record->end = CLOCK();
    record->begin = begin;
    record->result = result;
}

#endif
