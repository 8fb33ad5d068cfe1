// SPDX-License-Identifier: Apache-2.0
#include "session.h"
#include "engine.h"
#include "fail.h"
#include "frame.h"
#include "link.h"
#include "offers.h"
#include "pace.h"
#include "ranks.h"
#include "receive.h"
#include "thread.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

unsigned session_queues_reached(const struct session *session) {
    bool reached[MAX_QUEUES] = {0};
    unsigned count = 0;

    for (unsigned stream = 0; stream < session->streams; stream++) {
        bool *queue = &reached[session->engine->queue_of(session, stream)];
        count += !*queue;
        *queue = true;
    }
    return count;
}

// The controlling thread goes first: it must end the burst while senders fill every CPU.
static void take_priority(struct session *session) {
    int error = session->options.fifo ? thread_fifo(session->options.fifo + 1) : 0;

    session->fifo = session->options.fifo && !error;
    if (session->fifo)
        snprintf(session->sched_policy, sizeof(session->sched_policy), "SCHED_FIFO:%u",
                 session->options.fifo);
    else if (error)
        snprintf(session->sched_policy, sizeof(session->sched_policy), "SCHED_OTHER (refused: %s)",
                 strerrorname_np(-error));
    else
        strcpy(session->sched_policy, "SCHED_OTHER");
}

static int find_index(const char *interface, unsigned *ifindex) {
    *ifindex = if_nametoindex(interface);
    return *ifindex ? 0
                    : failed("interface", errno, NULL, "there is no interface %s in this network namespace",
                             interface);
}

static int find_device(struct session *session) {
    static const uint8_t own[6];
    struct options *options = &session->options;

    int error = find_index(options->interface, &session->ifindex)
                    ?: find_index(options->receive_on, &session->receive_ifindex);

    unsigned most;

    error = error ?: link_largest_frame(options->receive_on, &most);
    if (error)
        return error;
    session->in_buffers = most > ETH_FRAME_LEN + VLAN_BYTES;
    if (!memcmp(options->src_mac, own, sizeof(own)))
        return link_mac(options->interface, options->src_mac);
    return 0;
}

int session_set_flows(struct session *session) {
    const struct options *options = &session->options;
    const unsigned count = options->flows > session->streams ? options->flows : session->streams;

    frame_head_fill(&session->head, options);
    session->steps = (struct flow_steps){
        .src_ip = ntohl(options->src_ip),
        .dst_ip = ntohl(options->dst_ip),
        .src_port = options->src_port,
        .src_ip_stride = options->src_ip_stride,
        .dst_ip_stride = options->dst_ip_stride,
        .port_stride = options->port_stride,
        .addresses = options->flows,
    };
    session->flows = (struct flows){
        .count = count,
        .streams = session->streams,
        .longer = count % session->streams,
        .drawn = options->zipf > 0,
        .seed = options->flow_seed,
        .by_number = options->zipf > 0 || options->churn > 0 || count > PAYLOAD_LABELS,
        .churn_interval = interval_of(options->churn, session->streams),
    };
    return options->zipf > 0 ? ranks_fill(session->ranks, &session->flows, options->zipf) : 0;
}

int session_open(struct session *session) {
    int error;

    session->engine = engine_find(session->options.engine);
    if (!session->engine)
        return failed("options", EINVAL, NULL, "--engine is live or afxdp, not %s", session->options.engine);
    session->recognised = !session->options.frames;
    session->seed = session->options.stamp_seed ?: now_ns();
    error = find_device(session);
    if (!error)
        error = cpus_choose(&session->options.cpus, session->options.queues);
    if (error)
        return error;
    if (session->options.tx_device_stamps)
        error = offers_require_stamps(&session->options, session->ifindex);
    if (error)
        return error;
    session->streams = session->engine->streams(&session->options);
    session->options.batch = session->options.batch ?: session->engine->batch(session);
    error = session_set_flows(session);
    if (!error && !session->options.no_receive)
        error = receive_open(session);
    if (!error)
        error = session->engine->open(session);
    if (!error)
        take_priority(session);
    return error;
}

void session_close(struct session *session) {
    if (session->engine)
        session->engine->close();
    receive_close();
}
