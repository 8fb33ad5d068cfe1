// SPDX-License-Identifier: Apache-2.0
#include "receive.h"
#include "clock.h"
#include "counts.h"
#include "fail.h"
#include "frame.h"
#include "let_go.h"
#include "object.h"
#include "phc.h"
#include "refusal.h"
#include "thread.h"

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
#define BPF_F_XDP_DEV_BOUND_ONLY (1U << 6) // Linux 6.3
#endif

static struct {
    struct bpf_object *object;
    int link;
    const struct arrival *arrivals; // of all streams; NULL where they are not kept
    size_t arrivals_bytes;
    struct churned *churn; // of all streams; NULL where no flow is replaced
    size_t churn_bytes;
    int clock; // of the device's own stamps; -1: none is asked for, or it has none
} receive = {.link = -1, .clock = -1};

// Of any mode; 0 where there is none.
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

static struct bpf_program *receiving_program(void) {
    return bpf_object__find_program_by_name(receive.object, "receive_frame");
}

// Only a program bound to one device may ask its driver.
static int load_for_device(const struct session *session) {
    struct bpf_program *program = receiving_program();

    bpf_program__set_ifindex(program, session->receive_ifindex);
    bpf_program__set_flags(program, bpf_program__flags(program) | BPF_F_XDP_DEV_BOUND_ONLY);
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

static int size_churn(const struct session *session, struct bpf_object *object) {
    const unsigned slots = session->flows.churn_interval ? session->streams * CHURN_BLOCKS : 1;

    return bpf_map__set_max_entries(bpf_object__find_map_by_name(object, "churn"), slots)
               ? failed("load", EINVAL, NULL, "no room for the churn of %u streams", session->streams)
               : 0;
}

static int map_churn(const struct session *session) {
    if (!session->flows.churn_interval)
        return 0;
    receive.churn_bytes = session->streams * CHURN_BLOCKS * sizeof(*receive.churn);
    void *churn = mmap(NULL, receive.churn_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                       object_map_fd(receive.object, "churn"), 0);
    if (churn == MAP_FAILED)
        return failed("load", errno, NULL, "the churn of flows cannot be mapped: %s", strerror(errno));
    receive.churn = churn;
    return 0;
}

static int load(const struct session *session) {
    int error = size_churn(session, receive.object);

    if (error)
        return error;
    if (!session->options.device_stamps)
        return object_load(receive.object) ?: map_churn(session);
    error = size_arrivals(session) ?: load_for_device(session) ?: map_churn(session);
    return error ?: session->options.tx_device_stamps ? map_arrivals() : 0;
}

int receive_open(const struct session *session) {
    const struct receive_settings settings = {
        .plain = session->options.plain,
        .magic = frame_magic(&session->options),
        .burst = session->options.burst,
        .udp_port = session->options.dst_port,
        .keep_arrivals = session->options.tx_device_stamps,
        .in_buffers = session->in_buffers,
        .flows = session->flows,
        .layout = session->options.layout,
        .sizes = session->options.sizes,
    };

    receive.object = session->options.device_stamps ? OBJECT_OPEN(receive_device, &settings)
                                                    : OBJECT_OPEN(receive, &settings);
    if (!receive.object)
        return failed_before();
    if (session->in_buffers)
        bpf_program__set_flags(receiving_program(), BPF_F_XDP_HAS_FRAGS);
    return load(session) ?: counts_open(session, receive.object, receive.clock) ?: attach(session);
}

const struct arrival *receive_arrivals(unsigned stream) {
    return receive.arrivals + (size_t)stream * ARRIVAL_SLOTS;
}

struct churned *receive_churn(unsigned stream) {
    return receive.churn ? receive.churn + stream * CHURN_BLOCKS : NULL;
}

int receive_share_churn(const struct session *session, struct bpf_object *object) {
    if (!receive.churn)
        return size_churn(session, object);
    const int error = bpf_map__reuse_fd(bpf_object__find_map_by_name(object, "churn"),
                                        object_map_fd(receive.object, "churn"));
    return error ? failed("load", -error, NULL, "the churn of flows cannot be shared") : 0;
}

int receive_program_fd(void) { return object_program_fd(receive.object, "receive_frame"); }

void receive_close(void) {
    if (receive.link >= 0)
        close(receive.link);
    if (receive.clock >= 0)
        close(receive.clock);
    if (receive.arrivals)
        munmap((void *)receive.arrivals, receive.arrivals_bytes);
    if (receive.churn)
        munmap(receive.churn, receive.churn_bytes);
    bpf_object__close(receive.object);
    counts_close();
}
