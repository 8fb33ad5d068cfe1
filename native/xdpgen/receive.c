// SPDX-License-Identifier: Apache-2.0
#include "receive.h"
#include "error.h"
#include "frame.h"
#include "object.h"

#include <errno.h>
#include <linux/if_link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

static struct {
    struct bpf_object *object;
    struct receive_memory *memory;
    int link, counters;
    struct receive_counters *values; /* one per possible CPU */
} receive = {.link = -1};

static int attach(const struct session *session) {
    LIBBPF_OPTS(bpf_link_create_opts, native, .flags = XDP_FLAGS_DRV_MODE);
    const char *interface = session->options.interface;
    uint32_t attached = 0;

    if (!bpf_xdp_query_id(session->ifindex, 0, &attached) && attached)
        return fail("attach", EBUSY, "%s already has an XDP program (id %u): detach it first", interface,
                    attached);
    receive.link = bpf_link_create(object_program_fd(receive.object, "receive_frame"), session->ifindex,
                                   BPF_XDP, &native);
    if (receive.link < 0)
        return fail("attach", errno, "the receiving program cannot be attached to %s natively: %s", interface,
                    strerror(errno));
    return 0;
}

int receive_open(const struct session *session) {
    const struct receive_settings settings = {
        .magic = frame_magic(&session->options),
        .streams = session->streams,
        .udp_port = session->options.dst_port,
    };
    int error;

    receive.object = OBJECT_OPEN(receive, &settings);
    if (!receive.object)
        return -failure.error;
    error = object_load(receive.object);
    if (error)
        return error;
    receive.counters = object_map_fd(receive.object, "counters");
    receive.memory = object_memory(receive.object, sizeof(*receive.memory));
    receive.values = per_cpu_values(sizeof(*receive.values));
    if (!receive.memory || !receive.values)
        return fail("load", ENOMEM, "no memory for the counters");
    return attach(session);
}

static void reset_streams(const struct session *session) {
    for (unsigned index = 0; index < session->streams; index++) {
        struct receive_stream *stream = &receive.memory->streams[index];
        memset(stream->seen, 0, sizeof(stream->seen));
        stream->first = stream->next = session->sequences[index];
    }
}

static int reset_counters(void) {
    const uint32_t zero = 0;

    for (int cpu = 0; cpu < libbpf_num_possible_cpus(); cpu++)
        receive.values[cpu] = (struct receive_counters){.latency_min = UINT64_MAX};
    if (bpf_map_update_elem(receive.counters, &zero, receive.values, 0))
        return fail("receive", errno, "the counters cannot be reset");
    return 0;
}

int receive_begin(const struct session *session) {
    reset_streams(session);
    return reset_counters();
}

/* Every counter is a sum, but for the smallest and the largest latency. */
static void add(struct receive_counters *sum, const struct receive_counters *one) {
    uint64_t min = sum->latency_min < one->latency_min ? sum->latency_min : one->latency_min;
    uint64_t max = sum->latency_max > one->latency_max ? sum->latency_max : one->latency_max;
    uint64_t *to = (uint64_t *)sum;
    const uint64_t *from = (const uint64_t *)one;

    for (size_t i = 0; i < sizeof(*sum) / sizeof(*to); i++)
        to[i] += from[i];
    sum->latency_min = min;
    sum->latency_max = max;
}

int receive_read(struct receive_counters *sum) {
    const uint32_t zero = 0;

    *sum = (struct receive_counters){.latency_min = UINT64_MAX};
    if (bpf_map_lookup_elem(receive.counters, &zero, receive.values))
        return fail("receive", errno, "the counters cannot be read");
    for (int cpu = 0; cpu < libbpf_num_possible_cpus(); cpu++)
        add(sum, &receive.values[cpu]);
    return 0;
}

uint64_t receive_packets(const struct receive_counters *counters) {
    uint64_t packets = 0;

    for (unsigned queue = 0; queue < MAX_QUEUES; queue++)
        packets += counters->by_queue[queue];
    return packets;
}

uint64_t receive_lower_bound(unsigned bucket) {
    unsigned octave = bucket >> SUB_BITS, sub = bucket & (SUB_BUCKETS - 1);

    return octave ? (uint64_t)(SUB_BUCKETS + sub) << (octave - 1) : sub;
}

void receive_close(void) {
    if (receive.link >= 0)
        close(receive.link);
    bpf_object__close(receive.object);
    free(receive.values);
}
