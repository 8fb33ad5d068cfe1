// SPDX-License-Identifier: Apache-2.0
#include "afxdp_queue.h"
#include "clock.h"
#include "frame.h"
#include "thread.h"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <string.h>

// A paced sender sleeps until so long before a frame is due, then waits awake.
#define WAKE_EARLY_NS 20000
// The kernel takes the last batches at its own pace: an emulated one, some ten frames in a millisecond.
#define STUCK_NS (100 * NS_PER_MS)
#define DRAIN_NS (2 * NS_PER_SECOND)

struct afxdp afxdp;

// The frame's number is the newest one so far that ends in what the frame carries.
void afxdp_sent(void *whose, const struct tx_metadata *metadata, const uint8_t *frame) {
    struct queue *queue = whose;
    const uint64_t *stamp = (const uint64_t *)frame + afxdp.session->options.layout.head_words;
    const uint32_t low = ntohl(*(const uint32_t *)(stamp + 1)), newest = queue->sequence;

    stamps_record(queue->stamps, queue->sequence - (newest - low), metadata->completion.tx_timestamp);
}

static void fill_from_pcap(struct queue *queue) {
    const struct pcap_frame *frame = &afxdp.pcap.frames[queue->frame];

    memcpy(xsk_frame(&queue->xsk, frame->bytes), frame->data, frame->bytes);
    queue->counts.bytes += frame->bytes;
    // Recorded frames go round the queues: all of them together are the traffic.
    queue->frame += afxdp.session->options.recorded ? afxdp.session->streams : 1;
    for (; queue->frame >= afxdp.pcap.count; queue->frame -= afxdp.pcap.count)
        queue->round_ns += afxdp.pcap.period_ns;
}

uint64_t afxdp_recorded_due(const struct queue *queue) {
    return (queue->round_ns + afxdp.pcap.frames[queue->frame].ns) << SCHEDULE_SHIFT;
}

// Writes number and stamp behind the head, which has so many words.
static inline uint64_t number_frame(struct queue *queue, __u64 *words, unsigned head_words) {
    __u64 *stamp = words + head_words;

    *(uint32_t *)(stamp + 1) = htonl(queue->sequence);
    *stamp = 0;
    if (drawn(&queue->stamped, afxdp.session->options.stamp_every)) {
        ((uint8_t *)stamp)[-2] |= PAYLOAD_STAMPED >> 8;
        *stamp = now_ns();
    }
    return *stamp;
}

static uint32_t next_rank_of(struct queue *queue, uint64_t elapsed) {
    const struct session *session = afxdp.session;
    struct flow_cursor *cursor = &queue->flow;

    if (session->flows.churn_interval && begins_block(cursor, queue->sequence)) {
        follow_churn(cursor, session->flows.churn_interval, elapsed);
        if (queue->churn)
            queue->churn[churn_slot(0, queue->sequence)] = cursor->churned;
    }
    const struct ranks *ranks = &session->ranks[ranks_of_stream(&session->flows, cursor->stream)];
    return next_rank(cursor, &session->flows, ranks, queue->sequence);
}

static struct frame_flow flow_of(const struct queue *queue, uint32_t rank) {
    return flow_of_rank(&queue->flow, &afxdp.session->flows, &afxdp.session->steps, rank);
}

void afxdp_write_heads(const struct xsk *xsk) {
    for (unsigned i = 0; i < xsk->free_count; i++)
        memcpy(xsk->area + xsk->free[i], &afxdp.session->head, 8 * PLAIN_HEAD_WORDS);
}

void afxdp_make_ready(struct queue *queue) {
    for (uint32_t rank = 0; rank < queue->flow.count && rank < READY_FLOWS; rank++)
        frame_write_flow_words(&queue->ready[rank], afxdp.session->head.words, flow_of(queue, rank));
}

// With a tag, of IPv6, of several sizes, or to be stamped by the device. The head is that of the largest
// frames.
static __attribute__((cold, noinline)) void fill_other_frame(struct queue *queue, struct frame_flow flow) {
    const struct options *options = &afxdp.session->options;
    const struct frame_layout *layout = &options->layout;
    const struct frame_sizes *sizes = &options->sizes;
    const unsigned bytes = sizes->bytes[frame_size_index(sizes->count, queue->sequence)];
    __u64 *words = (__u64 *)xsk_frame(&queue->xsk, bytes);
    uint16_t *sum = (uint16_t *)((uint8_t *)words + layout->sum_at);

    memcpy(words, &afxdp.session->head, 8 * layout->head_words);
    frame_write_flow((uint16_t *)words, layout->ip_version, layout->ip_at, layout->udp_at, layout->head_words,
                     flow);
    if (bytes != sizes->largest)
        frame_change_size(words, layout->ip_version, layout->ip_at, layout->udp_at, sizes->largest, bytes);
    const uint64_t stamp = number_frame(queue, words, layout->head_words);
    if (stamp && queue->stamps)
        xsk_ask(&queue->xsk)->flags = TX_METADATA_TIMESTAMP;
    if (layout->sum_at)
        *sum = frame_udp_sum(*sum, stamp, htonl(queue->sequence), stamp != 0);
}

static void fill_test_frame(struct queue *queue, uint64_t elapsed) {
    const struct session *session = afxdp.session;
    const uint32_t rank = next_rank_of(queue, elapsed);

    if (!session->options.usual) {
        fill_other_frame(queue, flow_of(queue, rank));
        return;
    }
    __u64 *words = (__u64 *)xsk_frame(&queue->xsk, session->options.sizes.largest);
    struct flow_words *differing = (struct flow_words *)(words + PLAIN_FLOW_WORD);
    if (rank < READY_FLOWS && !session->flows.churn_interval)
        *differing = queue->ready[rank];
    else
        frame_write_flow_words(differing, session->head.words, flow_of(queue, rank));
    number_frame(queue, words, PLAIN_HEAD_WORDS);
}

// How many frames are due, at most; all there may be where there is no rate.
static uint64_t due_frames(const struct queue *queue, uint64_t elapsed) {
    const uint64_t schedule = elapsed << SCHEDULE_SHIFT;

    if (schedule < queue->due)
        return 0;
    if (!afxdp.interval)
        return UINT64_MAX;
    return queue->burst_left + (schedule - queue->due) / afxdp.interval * afxdp.session->options.burst;
}

// Moves the schedule on by one frame. Those behind the first of a burst are not late: they wait for it.
static void keep_schedule(struct queue *queue, uint64_t elapsed) {
    const unsigned burst = afxdp.session->options.burst;
    uint64_t late = elapsed - (queue->due >> SCHEDULE_SHIFT);

    if (!session_paced(afxdp.session))
        return;
    if (late > queue->counts.latest_ns)
        queue->counts.latest_ns = late;
    queue->counts.late_packets += late > LATE_NS && queue->burst_left == burst;
    histogram_record_capped(&queue->late, late);
    if (--queue->burst_left)
        return;
    queue->burst_left = burst;
    queue->due = afxdp.interval ? queue->due + afxdp.interval : afxdp_recorded_due(queue);
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

// Sends one batch of what is due within the window. The clock is read for each queue: the batches of those
// before it take their time.
static void serve(struct queue *queue) {
    const uint64_t now = now_ns(), elapsed = now - afxdp.start_ns;
    const uint64_t until = least(elapsed, afxdp.end_ns - 1 - afxdp.start_ns);
    const uint64_t due = due_frames(queue, until);
    uint64_t wanted = least(due, queue->end_sequence - queue->sequence);
    unsigned frames = wanted ? xsk_begin(&queue->xsk, least(wanted, afxdp.session->options.batch)) : 0;

    if (!wanted)
        return;
    if (!session_paced(afxdp.session))
        look(&queue->looks, now);
    for (unsigned i = 0; i < frames && queue->due <= until << SCHEDULE_SHIFT; i++, queue->sequence++) {
        if (afxdp.pcap.count)
            fill_from_pcap(queue);
        else
            fill_test_frame(queue, elapsed);
        keep_schedule(queue, elapsed);
    }
    xsk_end(&queue->xsk);
    if (queue->sequence == queue->end_sequence)
        queue->counts.stopped_ns = now_ns();
}

static void wait_for_start(void) {
    while (!afxdp.start_ns && !workers_stopping())
        sleep_until_ns(now_ns() + NS_PER_MS / 4);
    if (!workers_stopping())
        sleep_until_ns(afxdp.start_ns);
}

// Sleeps if the next frame of these queues is far enough away.
static void wait_for_due(const struct worker *worker) {
    const unsigned step = afxdp.session->options.cpus.count;
    uint64_t due = UINT64_MAX;

    for (unsigned stream = worker->index; stream < afxdp.session->streams; stream += step)
        due = least(due, afxdp.queues[stream].due >> SCHEDULE_SHIFT);
    due = least(afxdp.start_ns + due, afxdp.end_ns);
    if (due > now_ns() + 2 * WAKE_EARLY_NS)
        sleep_until_ns(due - WAKE_EARLY_NS);
}

// The kernel still has frames of the last batches. What it took later would be sent, and counted by the DUT,
// in the next burst. At max load the ring is full then, and the burst lasts until it is empty.
static void drain(struct queue *queue) {
    const uint64_t end = now_ns() + DRAIN_NS;
    uint64_t stuck = now_ns() + STUCK_NS;

    xsk_begin(&queue->xsk, 0);
    queue->left = xsk_pending(&queue->xsk);
    const bool late = queue->left && !session_paced(afxdp.session);
    while (queue->left && now_ns() < least(stuck, end) && !interrupted) {
        xsk_end(&queue->xsk);
        xsk_begin(&queue->xsk, 0);
        if (xsk_pending(&queue->xsk) < queue->left)
            stuck = now_ns() + STUCK_NS;
        queue->left = xsk_pending(&queue->xsk);
    }
    if (late)
        queue->counts.taken_ns = now_ns();
}

void afxdp_work(struct worker *worker) {
    const unsigned step = afxdp.session->options.cpus.count, streams = afxdp.session->streams;

    wait_for_start();
    while (!workers_stopping() && now_ns() < afxdp.end_ns) {
        for (unsigned stream = worker->index; stream < streams; stream += step)
            serve(&afxdp.queues[stream]);
        if (session_paced(afxdp.session))
            wait_for_due(worker);
    }
    for (unsigned stream = worker->index; stream < streams; stream += step)
        drain(&afxdp.queues[stream]);
}
