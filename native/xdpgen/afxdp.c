// SPDX-License-Identifier: Apache-2.0
/*
 * Engine `afxdp`: a socket per queue, a thread per CPU that serves its queues
 * in turn. It reaches every queue whatever the number of CPUs, and sends frames
 * of any kind, at a fraction of the rate of live frames.
 */
#include "clock.h"
#include "engine.h"
#include "fail.h"
#include "histograms.h"
#include "link.h"
#include "pcap.h"
#include "receive.h"
#include "stamps.h"
#include "workers.h"
#include "xsk.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <stdlib.h>
#include <string.h>

#define FULL_BATCH 256
#define PACED_BATCH 32
#define WAKE_EARLY_NS                                                                                        \
    20000 /* a paced sender sleeps until so long before a frame is due, then                                 \
           * waits awake                                                                                     \
           */
/* The kernel takes the last batches at its own pace: an emulated one, some ten frames in a millisecond. */
#define STUCK_NS (100 * NS_PER_MS)
#define DRAIN_NS (2 * NS_PER_SECOND)

/* One queue's stream. The worker writes it, the controlling thread reads the
 * counts. */
struct queue {
    struct xsk xsk;
    volatile uint64_t sequence;
    uint64_t end_sequence;
    uint64_t due;
    unsigned flow;
    struct draw stamped;
    unsigned frame; /* of the pcap */
    unsigned left;  /* frames that the kernel has not taken when the burst is over */
    volatile struct stream_counts counts;
    struct looks looks;
    struct histogram late;
    struct sent_stamps *stamps; /* by the device; NULL: not asked for */
};

static struct {
    const struct session *session;
    struct queue *queues;
    struct pcap pcap;
    uint64_t interval;
    _Atomic uint64_t start_ns; /* 0: not yet known */
    uint64_t end_ns;
    uint32_t failures_before;
} afxdp;

static unsigned afxdp_streams(const struct options *options) { return options->queues; }

static unsigned afxdp_queue_of(const struct session *session, unsigned stream) {
    (void)session;
    return stream;
}

static unsigned afxdp_batch(const struct session *session) {
    return session->options.rate_pps ? PACED_BATCH : FULL_BATCH;
}

/* The frame's number is the newest one so far that ends in what the frame carries. */
static void frame_sent(void *whose, const struct tx_metadata *metadata, const uint8_t *frame) {
    struct queue *queue = whose;
    const uint64_t *stamp = (const uint64_t *)frame + afxdp.session->options.layout.head_words;
    const uint32_t low = ntohl(*(const uint32_t *)(stamp + 1)), newest = queue->sequence;

    stamps_record(queue->stamps, queue->sequence - (newest - low), metadata->completion.tx_timestamp);
}

static int ask_for_stamps(struct queue *queue, unsigned stream) {
    queue->stamps = malloc(sizeof(*queue->stamps));
    if (!queue->stamps)
        return failed("stamps", ENOMEM, NULL, "no memory for the stamps of queue %u", stream);
    queue->stamps->arrivals = receive_arrivals(stream);
    queue->xsk.done = frame_sent;
    queue->xsk.whose = queue;
    return 0;
}

static int afxdp_open(struct session *session) {
    const struct options *options = &session->options;
    int error = 0;

    /* A CPU without a queue has nothing to do. */
    if (session->options.cpus.count > session->streams)
        session->options.cpus.count = session->streams;
    afxdp.session = session;
    afxdp.interval = engine_interval(session);
    afxdp.queues = calloc(session->streams, sizeof(*afxdp.queues));
    if (options->frames)
        error = pcap_read(&afxdp.pcap, options->frames, XSK_FRAME_BYTES);
    for (unsigned queue = 0; !error && queue < session->streams; queue++) {
        error = xsk_open(&afxdp.queues[queue].xsk, &(struct xsk_request){
                                                       .interface = options->interface,
                                                       .queue = queue,
                                                       .zerocopy = options->zerocopy,
                                                       .need_wakeup = options->need_wakeup,
                                                       .busy_poll_us = options->busy_poll_us,
                                                       .metadata = options->tx_device_stamps,
                                                       .commanded = options->step,
                                                   });
        if (!error && options->tx_device_stamps)
            error = ask_for_stamps(&afxdp.queues[queue], queue);
    }
    return error;
}

static void fill_from_pcap(struct queue *queue) {
    const struct pcap_frame *frame = &afxdp.pcap.frames[queue->frame];

    memcpy(xsk_frame(&queue->xsk, frame->bytes), frame->data, frame->bytes);
    queue->counts.bytes += frame->bytes;
    queue->frame = (queue->frame + 1) % afxdp.pcap.count;
}

/* Writes number and stamp behind the head, which has so many words. */
static inline uint64_t number_frame(struct queue *queue, uint64_t *words, unsigned head_words) {
    uint64_t *stamp = words + head_words;

    *(uint32_t *)(stamp + 1) = htonl(queue->sequence);
    *stamp = 0;
    if (drawn(&queue->stamped, afxdp.session->options.stamp_every)) {
        ((uint8_t *)stamp)[-2] |= PAYLOAD_STAMPED >> 8;
        *stamp = now_ns();
    }
    return *stamp;
}

/* With a tag, of IPv6, of several sizes, or to be stamped by the device. The heads are those of the largest
 * frames. */
static __attribute__((cold, noinline)) void fill_other_frame(struct queue *queue,
                                                             const struct frame_head *head) {
    const struct options *options = &afxdp.session->options;
    const struct frame_layout *layout = &options->layout;
    const struct frame_sizes *sizes = &options->sizes;
    const unsigned bytes = sizes->bytes[frame_size_index(sizes->count, queue->sequence)];
    uint64_t *words = (uint64_t *)xsk_frame(&queue->xsk, bytes);
    uint16_t *sum = (uint16_t *)((uint8_t *)words + layout->sum_at);

    memcpy(words, head, 8 * layout->head_words);
    if (bytes != sizes->largest)
        frame_change_size(words, layout->ip_version, layout->ip_at, layout->udp_at, sizes->largest, bytes);
    const uint64_t stamp = number_frame(queue, words, layout->head_words);
    if (stamp && queue->stamps)
        xsk_ask(&queue->xsk)->flags = TX_METADATA_TIMESTAMP;
    if (layout->sum_at)
        *sum = frame_udp_sum(*sum, stamp, htonl(queue->sequence), stamp != 0);
}

static void fill_test_frame(struct queue *queue, unsigned stream) {
    const struct session *session = afxdp.session;
    const struct frame_head *head = &session->heads[queue->flow];

    queue->flow += session->streams;
    if (queue->flow >= session->flows)
        queue->flow = stream;
    if (!session->options.usual) {
        fill_other_frame(queue, head);
        return;
    }
    uint64_t *words = (uint64_t *)xsk_frame(&queue->xsk, session->options.sizes.largest);
    memcpy(words, head, 8 * PLAIN_HEAD_WORDS);
    number_frame(queue, words, PLAIN_HEAD_WORDS);
}

/* How many frames are due; all there may be where there is no pace. */
static uint64_t due_frames(const struct queue *queue, uint64_t elapsed) {
    const uint64_t schedule = elapsed << SCHEDULE_SHIFT;

    if (!afxdp.interval)
        return UINT64_MAX;
    return schedule < queue->due ? 0 : (schedule - queue->due) / afxdp.interval + 1;
}

/* Moves the schedule on by one frame. */
static void keep_schedule(struct queue *queue, uint64_t elapsed) {
    uint64_t late = elapsed - (queue->due >> SCHEDULE_SHIFT);

    if (!afxdp.interval)
        return;
    if (late > queue->counts.latest_ns)
        queue->counts.latest_ns = late;
    queue->counts.late_packets += late > LATE_NS;
    histogram_record_capped(&queue->late, late);
    queue->due += afxdp.interval;
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Sends one batch of what is due within the window. The clock is read for each queue: the batches of those
 * before it take their time. */
static void serve(struct queue *queue, unsigned stream) {
    const uint64_t now = now_ns(), elapsed = now - afxdp.start_ns;
    const uint64_t due = due_frames(queue, least(elapsed, afxdp.end_ns - 1 - afxdp.start_ns));
    uint64_t wanted = least(due, queue->end_sequence - queue->sequence);
    unsigned frames = wanted ? xsk_begin(&queue->xsk, least(wanted, afxdp.session->options.batch)) : 0;

    if (!wanted)
        return;
    if (!afxdp.interval)
        look(&queue->looks, now);
    for (unsigned i = 0; i < frames; i++, queue->sequence++) {
        if (afxdp.pcap.count)
            fill_from_pcap(queue);
        else
            fill_test_frame(queue, stream);
        keep_schedule(queue, elapsed);
    }
    xsk_end(&queue->xsk, frames);
    if (queue->sequence == queue->end_sequence)
        queue->counts.stopped_ns = now_ns();
}

static void wait_for_start(void) {
    while (!afxdp.start_ns && !workers_stopping())
        sleep_until_ns(now_ns() + NS_PER_MS / 4);
    if (!workers_stopping())
        sleep_until_ns(afxdp.start_ns);
}

/* Sleeps if the next frame of these queues is far enough away. */
static void wait_for_due(const struct worker *worker) {
    const unsigned step = afxdp.session->options.cpus.count;
    uint64_t due = UINT64_MAX;

    for (unsigned stream = worker->index; stream < afxdp.session->streams; stream += step)
        due = least(due, afxdp.queues[stream].due >> SCHEDULE_SHIFT);
    due = least(afxdp.start_ns + due, afxdp.end_ns);
    if (due > now_ns() + 2 * WAKE_EARLY_NS)
        sleep_until_ns(due - WAKE_EARLY_NS);
}

/* The kernel still has frames of the last batches. What it took later would be sent, and counted by the DUT,
 * in the next burst. At max load the ring is full then, and the burst lasts until it is empty. */
static void drain(struct queue *queue) {
    const uint64_t end = now_ns() + DRAIN_NS;
    uint64_t stuck = now_ns() + STUCK_NS;

    xsk_begin(&queue->xsk, 0);
    queue->left = xsk_pending(&queue->xsk);
    const bool late = queue->left && !afxdp.interval;
    while (queue->left && now_ns() < least(stuck, end) && !interrupted) {
        xsk_end(&queue->xsk, 0);
        xsk_begin(&queue->xsk, 0);
        if (xsk_pending(&queue->xsk) < queue->left)
            stuck = now_ns() + STUCK_NS;
        queue->left = xsk_pending(&queue->xsk);
    }
    if (late)
        queue->counts.taken_ns = now_ns();
}

static void afxdp_work(struct worker *worker) {
    const unsigned step = afxdp.session->options.cpus.count, streams = afxdp.session->streams;

    wait_for_start();
    while (!workers_stopping() && now_ns() < afxdp.end_ns) {
        for (unsigned stream = worker->index; stream < streams; stream += step)
            serve(&afxdp.queues[stream], stream);
        if (afxdp.interval)
            wait_for_due(worker);
    }
    for (unsigned stream = worker->index; stream < streams; stream += step)
        drain(&afxdp.queues[stream]);
}

static int afxdp_arm(struct session *session, const uint64_t quotas[MAX_STREAMS]) {
    afxdp.start_ns = 0;
    for (unsigned stream = 0; stream < session->streams; stream++) {
        struct queue *queue = &afxdp.queues[stream];
        queue->sequence = session->sequences[stream];
        queue->end_sequence = queue->sequence + quotas[stream];
        queue->due = engine_first_due(session, stream);
        queue->flow = stream;
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
    .read = afxdp_read,
    .lateness = afxdp_lateness,
    .stamps = afxdp_stamps,
    .stop = afxdp_stop,
    .errors = afxdp_errors,
    .socket = afxdp_socket,
    .close = afxdp_close,
};
