// SPDX-License-Identifier: Apache-2.0
#include "histograms.h"
#include "fail.h"

#include <errno.h>
#include <string.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

uint64_t histogram_lower_bound(unsigned bucket) {
    unsigned octave = bucket >> SUB_BITS, sub = bucket & (SUB_BUCKETS - 1);

    return octave ? (uint64_t)(SUB_BUCKETS + sub) << (octave - 1) : sub;
}

uint64_t histogram_count(const struct histogram *histogram) {
    uint64_t count = 0;

    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
        count += histogram->buckets[i];
    return count;
}

void histogram_add(struct histogram *sum, const struct histogram *one) {
    sum->sum += one->sum;
    if (one->min < sum->min)
        sum->min = one->min;
    if (one->max > sum->max)
        sum->max = one->max;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
        sum->buckets[i] += one->buckets[i];
}

int histograms_reset(int map, struct histogram *values) {
    const uint32_t zero = 0;

    for (int cpu = 0; cpu < libbpf_num_possible_cpus(); cpu++)
        values[cpu] = HISTOGRAM_EMPTY;
    return bpf_map_update_elem(map, &zero, values, 0)
               ? failed("histogram", errno, NULL, "a histogram cannot be emptied")
               : 0;
}

int histograms_read(int map, struct histogram *values, struct histogram *sum) {
    const uint32_t zero = 0;

    *sum = HISTOGRAM_EMPTY;
    if (bpf_map_lookup_elem(map, &zero, values))
        return failed("histogram", errno, NULL, "a histogram cannot be read");
    for (int cpu = 0; cpu < libbpf_num_possible_cpus(); cpu++)
        histogram_add(sum, &values[cpu]);
    return 0;
}
