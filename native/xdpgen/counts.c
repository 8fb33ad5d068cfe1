// SPDX-License-Identifier: Apache-2.0
#include "counts.h"
#include "fail.h"
#include "histograms.h"
#include "link.h"
#include "object.h"
#include "pace.h"
#include "phc.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

static struct {
    struct receive_memory *memory;
    int counters, from_due, by_size;
    int clock;                       // of the device's own stamps; -1: none
    struct receive_counters *values; // one per possible CPU
    struct histogram *due_values;    // the same
    struct size_counts *size_values;
    const char *counted_by; // --plain: the device; NULL: the receiving program counts
    uint32_t device_before; // its count when it was last read, which wraps
    uint64_t received;      // since the burst began
} counts;

int counts_open(const struct session *session, struct bpf_object *object, int clock) {
    counts.counted_by = session->options.plain ? session->options.receive_on : NULL;
    counts.clock = clock;
    counts.counters = object_map_fd(object, "counters");
    counts.from_due = object_map_fd(object, "from_due");
    counts.by_size = object_map_fd(object, "by_size");
    counts.memory = object_memory(object, sizeof(*counts.memory));
    counts.values = per_cpu_values(sizeof(*counts.values));
    counts.due_values = per_cpu_values(sizeof(*counts.due_values));
    counts.size_values = per_cpu_values(sizeof(*counts.size_values));
    if (!counts.memory || !counts.values || !counts.due_values || !counts.size_values)
        return failed("load", ENOMEM, NULL, "no memory for the counters");
    memcpy(counts.memory->ranks, session->ranks, sizeof(session->ranks));
    return 0;
}

static void reset_streams(const struct session *session) {
    struct receive_memory *memory = counts.memory;

    memset(memory->flow_next, 0, session->flows.count * sizeof(*memory->flow_next));
    memset(memory->replaced, 0, session->flows.count * sizeof(*memory->replaced));
    for (unsigned index = 0; index < session->streams; index++) {
        struct receive_stream *stream = &counts.memory->streams[index];
        for (unsigned slot = 0; slot < SEEN_SLOTS; slot++)
            stream->seen[slot] = slot ^ 1; // no number of this slot
        stream->first = stream->next = session->sequences[index];
    }
}

static int reset_counters(void) {
    const uint32_t zero = 0;

    for (int cpu = 0; cpu < libbpf_num_possible_cpus(); cpu++) {
        memset(&counts.values[cpu], 0, sizeof(counts.values[cpu]));
        counts.values[cpu].latency.min = UINT64_MAX;
    }
    memset(counts.size_values, 0, libbpf_num_possible_cpus() * sizeof(*counts.size_values));
    if (bpf_map_update_elem(counts.counters, &zero, counts.values, 0) ||
        bpf_map_update_elem(counts.by_size, &zero, counts.size_values, 0))
        return failed("receive", errno, NULL, "the counters cannot be reset");
    return histograms_reset(counts.from_due, counts.due_values);
}

void counts_follow_clock(void) {
    int64_t offset;

    if (counts.clock < 0 || !phc_to_monotonic(counts.clock, &offset))
        return;
    counts.memory->clock.to_monotonic = offset;
    counts.memory->clock.known = 1;
}

const char *counts_no_stamp(void) {
    static char text[96];
    const struct receive_clock *clock = &counts.memory->clock;

    if (!clock->error && !clock->known)
        return "the device has no PTP clock, with which its time stamps could be compared";
    snprintf(text, sizeof(text), "the driver gave no time stamp: %s",
             clock->error ? strerrorname_np(clock->error) ?: "an unknown error" : "its stamp is 0");
    return text;
}

static int follow_device(void) {
    struct link_counts now = {};
    int error = link_counts(counts.counted_by, &now);

    counts.received += now.received - counts.device_before;
    counts.device_before = now.received;
    return error;
}

static int begin_device(void) {
    int error = follow_device();

    counts.received = 0;
    return error;
}

int counts_begin(const struct session *session) {
    counts.memory->schedule = (struct receive_schedule){0};
    counts.memory->clock.error = 0;
    counts_follow_clock();
    reset_streams(session);
    return reset_counters() ?: counts.counted_by ? begin_device() : 0;
}

void counts_schedule(const struct session *session, uint64_t start_ns) {
    counts.memory->schedule = (struct receive_schedule){
        .start_ns = start_ns,
        .interval = pace_interval(session),
        .stagger = pace_first_due(session, 1),
    };
}

static void add(struct receive_counters *sum, const struct receive_counters *one) {
    uint64_t *to = (uint64_t *)sum;
    const uint64_t *from = (const uint64_t *)one;

    for (size_t i = 0; i < offsetof(struct receive_counters, latency) / sizeof(*to); i++)
        to[i] += from[i];
    histogram_add(&sum->latency, &one->latency);
}

int counts_read(struct receive_counters *sum) {
    const uint32_t zero = 0;

    memset(sum, 0, sizeof(*sum));
    sum->latency.min = UINT64_MAX;
    if (counts.counted_by) {
        int error = follow_device();
        sum->by_queue[0] = counts.received; // of all queues
        return error;
    }
    if (bpf_map_lookup_elem(counts.counters, &zero, counts.values))
        return failed("receive", errno, NULL, "the counters cannot be read");
    for (int cpu = 0; cpu < libbpf_num_possible_cpus(); cpu++)
        add(sum, &counts.values[cpu]);
    return 0;
}

int counts_read_from_due(struct histogram *sum) {
    return histograms_read(counts.from_due, counts.due_values, sum);
}

int counts_read_sizes(struct size_counts *sum) {
    const uint32_t zero = 0;

    memset(sum, 0, sizeof(*sum));
    if (bpf_map_lookup_elem(counts.by_size, &zero, counts.size_values))
        return failed("receive", errno, NULL, "the counts by size cannot be read");
    for (int cpu = 0; cpu < libbpf_num_possible_cpus(); cpu++)
        for (unsigned index = 0; index < MOST_SIZES; index++)
            sum->frames[index] += counts.size_values[cpu].frames[index];
    return 0;
}

uint64_t counts_read_flows(const struct session *session) {
    uint64_t seen = 0;

    for (unsigned index = 0; index < session->flows.count; index++)
        seen += session->flows.churn_interval ? counts.memory->replaced[index].seen
                                              : counts.memory->flow_next[index] > 0;
    return seen;
}

uint64_t counts_packets(const struct receive_counters *counters) {
    uint64_t packets = 0;

    for (unsigned queue = 0; queue < MAX_QUEUES; queue++)
        packets += counters->by_queue[queue];
    return packets;
}

void counts_close(void) {
    free(counts.values);
    free(counts.due_values);
    free(counts.size_values);
}
