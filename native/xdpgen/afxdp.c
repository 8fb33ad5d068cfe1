// SPDX-License-Identifier: Apache-2.0
// Engine `afxdp`: a socket per queue, a thread per CPU that serves its queues in turn. It reaches every queue
// whatever the number of CPUs, and sends frames of any kind, at a fraction of the rate of live frames.
#include "afxdp_queue.h"
#include "fail.h"
#include "histograms.h"
#include "link.h"
#include "pace.h"
#include "receive.h"
#include "thread.h"

#include <errno.h>
#include <stdlib.h>

#define FULL_BATCH 256
#define PACED_BATCH 32

static unsigned afxdp_streams(const struct options *options) { return options->queues; }

static unsigned afxdp_queue_of(const struct session *session, unsigned stream) {
    (void)session;
    return stream;
}

static unsigned afxdp_batch(const struct session *session) {
    return session_paced(session) ? PACED_BATCH : FULL_BATCH;
}

static int ask_for_stamps(struct queue *queue, unsigned stream) {
    queue->stamps = malloc(sizeof(*queue->stamps));
    if (!queue->stamps)
        return failed("stamps", ENOMEM, NULL, "no memory for the stamps of queue %u", stream);
    queue->stamps->arrivals = receive_arrivals(stream);
    queue->xsk.done = afxdp_sent;
    queue->xsk.whose = queue;
    return 0;
}

static int afxdp_open(struct session *session) {
    const struct options *options = &session->options;
    int error = 0;

    // A CPU without a queue has nothing to do.
    if (session->options.cpus.count > session->streams)
        session->options.cpus.count = session->streams;
    afxdp.session = session;
    afxdp.interval = pace_interval(session);
    afxdp.queues = calloc(session->streams, sizeof(*afxdp.queues));
    if (options->frames)
        error = pcap_read(&afxdp.pcap, options->frames, XSK_FRAME_BYTES);
    if (!error && options->recorded)
        error = pcap_schedule(&afxdp.pcap, options->frames, options->recorded);
    for (unsigned queue = 0; !error && queue < session->streams; queue++) {
        error = xsk_open(&afxdp.queues[queue].xsk,
                         &(struct xsk_request){
                             .interface = options->interface,
                             .queue = queue,
                             .frame_bytes = options->frames ? 0 : options->sizes.largest,
                             .zerocopy = options->zerocopy,
                             .need_wakeup = options->need_wakeup,
                             .busy_poll_us = options->busy_poll_us,
                             .metadata = options->tx_device_stamps,
                             .commanded = options->step,
                         });
        if (!error && options->usual && !options->frames)
            afxdp_write_heads(&afxdp.queues[queue].xsk);
        if (!error && options->tx_device_stamps)
            error = ask_for_stamps(&afxdp.queues[queue], queue);
    }
    return error;
}

static int afxdp_arm(struct session *session, const uint64_t quotas[MAX_STREAMS]) {
    afxdp.start_ns = 0;
    for (unsigned stream = 0; stream < session->streams; stream++) {
        struct queue *queue = &afxdp.queues[stream];
        queue->sequence = session->sequences[stream];
        queue->end_sequence = queue->sequence + quotas[stream];
        queue->due = pace_first_due(session, stream);
        if (session->options.recorded) { // each burst begins with the file's first frame
            queue->frame = stream % afxdp.pcap.count;
            queue->round_ns = stream / afxdp.pcap.count * afxdp.pcap.period_ns;
            queue->due = afxdp_recorded_due(queue);
        }
        queue->burst_left = session->options.burst;
        queue->flow = (struct flow_cursor){
            .stream = stream, .count = flows_of_stream(&session->flows, stream), .first = queue->sequence};
        afxdp_make_ready(queue);
        queue->churn = receive_churn(stream);
        draw_begin(&queue->stamped, session->seed, stream, session->options.stamp_every);
        queue->left = 0;
        queue->counts = (struct stream_counts){0};
        queue->looks = (struct looks){0};
        queue->late = HISTOGRAM_EMPTY;
        if (queue->stamps)
            stamps_reset(queue->stamps);
    }
    return link_tx_failures(session->options.interface, &afxdp.failures_before)
               ?: workers_start(session, afxdp_work);
}

static void afxdp_go(const struct send_window *window) {
    afxdp.end_ns = window->end_ns;
    afxdp.start_ns = window->start_ns;
}

static uint64_t afxdp_due(uint64_t ns) { return pcap_due(&afxdp.pcap, ns); }

static int afxdp_read(const struct session *session, struct stream_counts counts[MAX_STREAMS]) {
    for (unsigned stream = 0; stream < session->streams; stream++) {
        counts[stream] = afxdp.queues[stream].counts;
        counts[stream].looks = afxdp.queues[stream].looks;
        counts[stream].sent = afxdp.queues[stream].sequence - session->sequences[stream];
    }
    return 0;
}

static int afxdp_lateness(const struct session *session, struct histogram *sum) {
    *sum = HISTOGRAM_EMPTY;
    for (unsigned stream = 0; stream < session->streams; stream++)
        histogram_add(sum, &afxdp.queues[stream].late);
    return 0;
}

static void afxdp_stamps(const struct session *session, struct sent_totals *sum) {
    *sum = (struct sent_totals){.latency = HISTOGRAM_EMPTY};
    for (unsigned stream = 0; stream < session->streams; stream++) {
        stamps_finish(afxdp.queues[stream].stamps);
        stamps_add(sum, &afxdp.queues[stream].stamps->totals);
    }
}

static int afxdp_stop(struct session *session) {
    int error = workers_stop();

    for (unsigned stream = 0; !error && !interrupted && stream < session->streams; stream++)
        if (afxdp.queues[stream].left)
            error = failed("send", EBUSY, NULL, "the kernel did not take the last %u frames of queue %u",
                           afxdp.queues[stream].left, stream);
    return error;
}

static int afxdp_errors(const struct session *session, uint64_t sent, uint64_t *errors, const char **why) {
    uint32_t failures;
    int error = link_tx_failures(session->options.interface, &failures);

    (void)sent;
    *why = NULL;
    *errors = failures - afxdp.failures_before;
    return error;
}

static struct socket_state afxdp_socket(void) {
    struct socket_state state = {.zerocopy = true, .napi = true};

    for (unsigned queue = 0; queue < afxdp.session->streams; queue++) {
        state.zerocopy &= xsk_is_zerocopy(&afxdp.queues[queue].xsk);
        state.napi &= xsk_has_napi(&afxdp.queues[queue].xsk);
    }
    return state;
}

static void afxdp_close(void) {
    for (unsigned queue = 0; afxdp.queues && queue < afxdp.session->streams; queue++) {
        xsk_close(&afxdp.queues[queue].xsk);
        free(afxdp.queues[queue].stamps);
    }
    free(afxdp.queues);
    pcap_free(&afxdp.pcap);
}

const struct engine afxdp_engine = {
    .name = "afxdp",
    .batch = afxdp_batch,
    .streams = afxdp_streams,
    .queue_of = afxdp_queue_of,
    .open = afxdp_open,
    .arm = afxdp_arm,
    .go = afxdp_go,
    .due = afxdp_due,
    .read = afxdp_read,
    .lateness = afxdp_lateness,
    .stamps = afxdp_stamps,
    .stop = afxdp_stop,
    .errors = afxdp_errors,
    .socket = afxdp_socket,
    .close = afxdp_close,
};
