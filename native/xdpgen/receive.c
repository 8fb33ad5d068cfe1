// SPDX-License-Identifier: Apache-2.0
#include "receive.h"
#include "clock.h"
#include "engine.h"
#include "fail.h"
#include "frame.h"
#include "histograms.h"
#include "let_go.h"
#include "object.h"
#include "phc.h"
#include "refusal.h"

#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#ifndef BPF_F_XDP_DEV_BOUND_ONLY
#define BPF_F_XDP_DEV_BOUND_ONLY (1U << 6) /* Linux 6.3 */
#endif

static struct {
    struct bpf_object *object;
    struct receive_memory *memory;
    int link, counters, from_due, by_size;
    const struct arrival *arrivals; /* of all streams; NULL where they are not kept */
    size_t arrivals_bytes;
    int clock;                       /* of the device's own stamps; -1: none is asked for, or it has none */
    struct receive_counters *values; /* one per possible CPU */
    struct histogram *due_values;    /* the same */
    struct size_counts *size_values;
} receive = {.link = -1, .clock = -1};

/* Of any mode; 0 where there is none. */
static uint32_t attached_program(const struct session *session) {
    uint32_t id = 0;

    return bpf_xdp_query_id(session->receive_ifindex, 0, &id) ? 0 : id;
}

static uint32_t program_that_stays(const struct session *session) {
    const uint64_t began = now_ns();
    uint32_t id;

    while ((id = attached_program(session)) && !interrupted &&
           !(session->options.step && nobody_commands()) && let_go_wait(began, LET_GO_PROGRAM_NS))
        ;
    return id;
}

static int attach(const struct session *session) {
    LIBBPF_OPTS(bpf_link_create_opts, native, .flags = XDP_FLAGS_DRV_MODE);
    const char *interface = session->options.receive_on;
    const uint32_t attached = program_that_stays(session);

    if (attached)
        return failed("attach", EBUSY, NULL, "%s already has an XDP program (id %u): detach it first",
                      interface, attached);
    receive.link = bpf_link_create(object_program_fd(receive.object, "receive_frame"),
                                   session->receive_ifindex, BPF_XDP, &native);
    if (receive.link < 0)
        return failed("attach", errno, NULL, "the receiving program cannot be attached to %s natively: %s",
                      interface, strerror(errno));
    return 0;
}

/* Only a program bound to one device may ask its driver. */
static int load_for_device(const struct session *session) {
    struct bpf_program *program = bpf_object__find_program_by_name(receive.object, "receive_frame");

    bpf_program__set_ifindex(program, session->receive_ifindex);
    bpf_program__set_flags(program, BPF_F_XDP_DEV_BOUND_ONLY);
    receive.clock = phc_open(session->options.receive_on);
    if (!bpf_object__load(receive.object))
        return 0;
    return failed(
        "stamps", errno, refusal_words(),
        "the kernel refuses a receiving program that asks %s for its time stamps (Linux 6.3 and newer "
        "have them): %s",
        session->options.receive_on, strerror(errno));
}

static int size_arrivals(const struct session *session) {
    const unsigned slots = session->options.tx_device_stamps ? session->streams * ARRIVAL_SLOTS : 1;

    receive.arrivals_bytes = slots * sizeof(struct arrival);
    return bpf_map__set_max_entries(bpf_object__find_map_by_name(receive.object, "arrivals"), slots)
               ? failed("load", EINVAL, NULL, "no room for %u arrivals", slots)
               : 0;
}

static int map_arrivals(void) {
    void *arrivals = mmap(NULL, receive.arrivals_bytes, PROT_READ, MAP_SHARED,
                          object_map_fd(receive.object, "arrivals"), 0);

    if (arrivals == MAP_FAILED)
        return failed("load", errno, NULL, "the arrivals cannot be mapped: %s", strerror(errno));
    receive.arrivals = arrivals;
    return 0;
}

static int load(const struct session *session) {
    if (!session->options.device_stamps)
        return object_load(receive.object);
    int error = size_arrivals(session) ?: load_for_device(session);
    return error ?: session->options.tx_device_stamps ? map_arrivals() : 0;
}

int receive_open(const struct session *session) {
    const struct receive_settings settings = {
        .magic = frame_magic(&session->options),
        .streams = session->streams,
        .flows = session->flows,
        .udp_port = session->options.dst_port,
        .keep_arrivals = session->options.tx_device_stamps,
        .layout = session->options.layout,
        .sizes = session->options.sizes,
    };
    int error;

    receive.object = session->options.device_stamps ? OBJECT_OPEN(receive_device, &settings)
                                                    : OBJECT_OPEN(receive, &settings);
    if (!receive.object)
        return failed_before();
    error = load(session);
    if (error)
        return error;
    receive.counters = object_map_fd(receive.object, "counters");
    receive.from_due = object_map_fd(receive.object, "from_due");
    receive.by_size = object_map_fd(receive.object, "by_size");
    receive.memory = object_memory(receive.object, sizeof(*receive.memory));
    receive.values = per_cpu_values(sizeof(*receive.values));
    receive.due_values = per_cpu_values(sizeof(*receive.due_values));
    receive.size_values = per_cpu_values(sizeof(*receive.size_values));
    if (!receive.memory || !receive.values || !receive.due_values || !receive.size_values)
        return failed("load", ENOMEM, NULL, "no memory for the counters");
    return attach(session);
}

static void reset_streams(const struct session *session) {
    memset(receive.memory->flow_next, 0, session->flows * sizeof(*receive.memory->flow_next));
    for (unsigned index = 0; index < session->streams; index++) {
        struct receive_stream *stream = &receive.memory->streams[index];
        for (unsigned slot = 0; slot < SEEN_SLOTS; slot++)
            stream->seen[slot] = slot ^ 1; /* no number of this slot */
        stream->first = stream->next = session->sequences[index];
    }
}

static int reset_counters(void) {
    const uint32_t zero = 0;

    for (int cpu = 0; cpu < libbpf_num_possible_cpus(); cpu++) {
        memset(&receive.values[cpu], 0, sizeof(receive.values[cpu]));
        receive.values[cpu].latency.min = UINT64_MAX;
    }
    memset(receive.size_values, 0, libbpf_num_possible_cpus() * sizeof(*receive.size_values));
    if (bpf_map_update_elem(receive.counters, &zero, receive.values, 0) ||
        bpf_map_update_elem(receive.by_size, &zero, receive.size_values, 0))
        return failed("receive", errno, NULL, "the counters cannot be reset");
    return histograms_reset(receive.from_due, receive.due_values);
}

void receive_follow_clock(void) {
    int64_t offset;

    if (receive.clock < 0 || !phc_to_monotonic(receive.clock, &offset))
        return;
    receive.memory->clock.to_monotonic = offset;
    receive.memory->clock.known = 1;
}

const char *receive_no_stamp(void) {
    static char text[96];
    const struct receive_clock *clock = &receive.memory->clock;

    if (!clock->error && !clock->known)
        return "the device has no PTP clock, with which its time stamps could be compared";
    snprintf(text, sizeof(text), "the driver gave no time stamp: %s",
             clock->error ? strerrorname_np(clock->error) ?: "an unknown error" : "its stamp is 0");
    return text;
}

int receive_begin(const struct session *session) {
    receive.memory->schedule = (struct receive_schedule){0};
    receive.memory->clock.error = 0;
    receive_follow_clock();
    reset_streams(session);
    return reset_counters();
}

void receive_schedule(const struct session *session, uint64_t start_ns) {
    receive.memory->schedule = (struct receive_schedule){
        .start_ns = start_ns,
        .interval = engine_interval(session),
        .stagger = engine_first_due(session, 1),
    };
}

static void add(struct receive_counters *sum, const struct receive_counters *one) {
    uint64_t *to = (uint64_t *)sum;
    const uint64_t *from = (const uint64_t *)one;

    for (size_t i = 0; i < offsetof(struct receive_counters, latency) / sizeof(*to); i++)
        to[i] += from[i];
    histogram_add(&sum->latency, &one->latency);
}

int receive_read(struct receive_counters *sum) {
    const uint32_t zero = 0;

    memset(sum, 0, sizeof(*sum));
    sum->latency.min = UINT64_MAX;
    if (bpf_map_lookup_elem(receive.counters, &zero, receive.values))
        return failed("receive", errno, NULL, "the counters cannot be read");
    for (int cpu = 0; cpu < libbpf_num_possible_cpus(); cpu++)
        add(sum, &receive.values[cpu]);
    return 0;
}

int receive_read_from_due(struct histogram *sum) {
    return histograms_read(receive.from_due, receive.due_values, sum);
}

int receive_read_sizes(struct size_counts *sum) {
    const uint32_t zero = 0;

    memset(sum, 0, sizeof(*sum));
    if (bpf_map_lookup_elem(receive.by_size, &zero, receive.size_values))
        return failed("receive", errno, NULL, "the counts by size cannot be read");
    for (int cpu = 0; cpu < libbpf_num_possible_cpus(); cpu++)
        for (unsigned index = 0; index < MOST_SIZES; index++)
            sum->frames[index] += receive.size_values[cpu].frames[index];
    return 0;
}

const struct arrival *receive_arrivals(unsigned stream) {
    return receive.arrivals + (size_t)stream * ARRIVAL_SLOTS;
}

int receive_program_fd(void) { return object_program_fd(receive.object, "receive_frame"); }

uint64_t receive_packets(const struct receive_counters *counters) {
    uint64_t packets = 0;

    for (unsigned queue = 0; queue < MAX_QUEUES; queue++)
        packets += counters->by_queue[queue];
    return packets;
}

void receive_close(void) {
    if (receive.link >= 0)
        close(receive.link);
    if (receive.clock >= 0)
        close(receive.clock);
    if (receive.arrivals)
        munmap((void *)receive.arrivals, receive.arrivals_bytes);
    bpf_object__close(receive.object);
    free(receive.values);
    free(receive.due_values);
    free(receive.size_values);
}
