/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The clock right before and right after the work: one text for all backends. */
#ifndef MICROBENCH_MEASURE_H
#define MICROBENCH_MEASURE_H

/* What the work reads must look as if it came from the clock, or the compiler may begin early. */
#define AFTER(clock, input) __asm__ volatile("" : "+r"(input) : "r"(clock) : "memory")
/* What the work made must be there, in registers and in memory, before the clock is read again. */
#define BEFORE(result) __asm__ volatile("" : "+r"(result) : : "memory")

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
