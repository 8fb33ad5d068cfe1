// SPDX-License-Identifier: Apache-2.0
// Engine `live`: the kernel runs send.bpf.c on frames of its own making and sends what it returns XDP_TX for
// (BPF_PROG_TEST_RUN with BPF_F_TEST_XDP_LIVE_FRAMES). One call lasts a whole burst: the program itself waits
// for the window, keeps the pace and stops.
#include "clock.h"
#include "engine.h"
#include "fail.h"
#include "histograms.h"
#include "hold.h"
#include "link.h"
#include "object.h"
#include "pace.h"
#include "receive.h"
#include "refused.h"
#include "thread.h"
#include "workers.h"

#include <errno.h>
#include <limits.h>
#include <linux/if_ether.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#define PACED_BATCH 8
#define FULL_BATCH 60 // fewer than a NAPI poll takes (64), which then ends at once: 3 % faster than 64
#define ARM_LIMIT_NS (5 * NS_PER_SECOND)
#define MOST_BETWEEN_LOOKS 64
#define LARGEST_BATCH 256 // TEST_XDP_MAX_BATCH of net/bpf/test_run.c

static struct {
    const struct session *session;
    struct bpf_object *object;
    struct link_counts counted; // plain: last seen of the sending device
    uint64_t plain_sent, plain_stopped_ns;
    const char *refused_missing; // why there is no count of refused frames
    struct send_memory *memory;
    int program, senders, lateness;
    struct xdp_md context;
    char frame[LIVE_METADATA + ZEROS] __attribute__((aligned(8)));
    struct sender *values;         // one per possible CPU
    struct histogram *late_values; // the same
} live;

static unsigned live_streams(const struct options *options) { return options->cpus.count; }

static unsigned live_queue_of(const struct session *session, unsigned stream) {
    return session->options.cpus.cpus[stream] % session->options.queues;
}

// A frame leaves when its batch ends: a small batch keeps the pace, a large one reaches the rate.
static unsigned live_batch(const struct session *session) {
    return session->options.rate_pps ? PACED_BATCH : FULL_BATCH;
}

// A kernel that has live frames refuses this batch as too large; an older one does not know the flag. Nothing
// is sent.
static int require_live_frames(void) {
    LIBBPF_OPTS(bpf_test_run_opts, run, .data_in = live.frame, .data_size_in = ETH_ZLEN, .repeat = 1,
                .flags = BPF_F_TEST_XDP_LIVE_FRAMES, .batch_size = LARGEST_BATCH + 1);

    if (bpf_prog_test_run_opts(live.program, &run) != -EINVAL)
        return 0;
    return failed("support", EOPNOTSUPP, NULL,
                  "this kernel has no live frames, which engine live sends: Linux 5.18 and newer have them");
}

static int lead_to_receiver(void) {
    const uint32_t zero = 0;
    int receiver = receive_program_fd();

    if (bpf_map_update_elem(object_map_fd(live.object, "receiver"), &zero, &receiver, 0))
        return failed("load", errno, NULL, "the sender cannot call the receiving program: %s",
                      strerror(errno));
    return 0;
}

// A look at a payload takes as long as it is long: at most one in 100 us, and at full load one frame in 64.
static unsigned look_every(const struct options *options) {
    const double frames = options->rate_pps ? options->rate_pps / 10e3 : MOST_BETWEEN_LOOKS;

    return frames < 4 ? 4 : frames > MOST_BETWEEN_LOOKS ? MOST_BETWEEN_LOOKS : frames;
}

static int load_sender(const struct session *session) {
    const struct send_settings settings = {
        .plain = session->options.plain,
        .paced = session->options.rate_pps > 0,
        .stamp_every = session->options.stamp_every,
        .look_every = look_every(&session->options),
        .burst = session->options.burst,
        .alone = session->options.alone,
        .flows = session->flows,
        .steps = session->steps,
        .layout = session->options.layout,
        .sizes = session->options.sizes,
        .head = session->head,
    };
    int error;

    live.object = OBJECT_OPEN(send, &settings);
    if (!live.object)
        return failed_before();
    if (session->in_buffers) // as the receiver has it: only like calls like
        bpf_program__set_flags(bpf_object__find_program_by_name(live.object, "send_frame"),
                               BPF_F_XDP_HAS_FRAGS);
    error = receive_share_churn(session, live.object) ?: object_load(live.object);
    if (error)
        return error;
    live.program = object_program_fd(live.object, "send_frame");
    error = require_live_frames();
    if (error)
        return error;
    live.senders = object_map_fd(live.object, "senders");
    live.lateness = object_map_fd(live.object, "lateness");
    live.memory = object_memory(live.object, sizeof(*live.memory));
    if (!live.memory)
        return failed_before();
    memcpy(live.memory->ranks, session->ranks, sizeof(session->ranks));
    return settings.alone == ALONE_RECEIVER ? lead_to_receiver() : 0;
}

// A frame that the device's MTU does not admit is dropped before its batch is flushed: nothing counts it.
static int require_room(const struct session *session) {
    const unsigned bytes = session->options.sizes.largest;
    unsigned most;
    int error = link_largest_frame(session->options.interface, &most);

    if (error || bytes <= most || session->options.alone)
        return error;
    return failed("frames", EMSGSIZE, NULL, "%s takes frames of at most %u bytes, not of %u: raise its MTU",
                  session->options.interface, most + ETH_FCS_LEN, bytes + ETH_FCS_LEN);
}

// Where a frame is longer than what every lap writes.
static void live_release(void) {
    const struct options *options = &live.session->options;

    live.memory->restores =
        options->whole && options->sizes.largest > live_written(options->layout.head_words);
}

// All its frames are of the first flow.
static void write_plain_frame(const struct session *session) {
    const struct frame_layout *layout = &session->options.layout;
    const struct flow_cursor first = {0};
    uint16_t *halves = (uint16_t *)live.frame;

    frame_write_flow(halves, layout->ip_version, layout->ip_at, layout->udp_at, layout->head_words,
                     flow_of_rank(&first, &session->flows, &session->steps, 0));
    if (layout->sum_at)
        halves[layout->sum_at / 2] = frame_udp_sum(halves[layout->sum_at / 2], 0, 0, false);
}

static int live_open(struct session *session) {
    const unsigned metadata = session->options.plain ? 0 : LIVE_METADATA;
    int error = require_room(session) ?: load_sender(session);

    if (error)
        return error;
    session->not_held = hold_open(live.program);
    live.refused_missing =
        session->options.plain ? "--plain: the device counts the frames that it took" : refused_open(session);
    live.session = session;
    live_release();
    live.context = (struct xdp_md){.data = metadata,
                                   .data_end = metadata + session->options.sizes.largest,
                                   .ingress_ifindex = session->ifindex};
    memcpy(live.frame + metadata, &session->head, sizeof(session->head));
    if (session->options.plain)
        write_plain_frame(session);
    live.values = per_cpu_values(sizeof(*live.values));
    live.late_values = per_cpu_values(sizeof(*live.late_values));
    return live.values && live.late_values ? 0
                                           : failed("load", ENOMEM, NULL, "no memory for the senders' state");
}

static void live_work(struct worker *worker) {
    while (!workers_stopping()) {
        LIBBPF_OPTS(bpf_test_run_opts, run, .data_in = live.frame, .data_size_in = live.context.data_end,
                    .ctx_in = &live.context, .ctx_size_in = sizeof(live.context), .repeat = INT_MAX,
                    .flags = BPF_F_TEST_XDP_LIVE_FRAMES, .batch_size = live.session->options.batch);
        int error = bpf_prog_test_run_opts(live.program, &run);
        if (error && error != -EINTR) {
            worker->what = "cannot send live frames (they need an XDP program or GRO "
                           "on the device)";
            worker->error = error;
            return;
        }
    }
}

static int read_senders(void) {
    const uint32_t zero = 0;

    if (bpf_map_lookup_elem(live.senders, &zero, live.values))
        return failed("send", errno, NULL, "the senders' state cannot be read");
    return 0;
}

static bool all_armed(const struct session *session) {
    const struct cpu_list *cpus = &session->options.cpus;

    for (unsigned i = 0; i < cpus->count; i++)
        if (!live.values[cpus->cpus[i]].armed)
            return false;
    return true;
}

static int wait_until_armed(const struct session *session) {
    uint64_t limit = now_ns() + ARM_LIMIT_NS;

    while (now_ns() < limit && !interrupted) {
        int error = workers_check() ?: read_senders();
        if (error || all_armed(session))
            return error;
        sleep_until_ns(now_ns() + NS_PER_MS / 10);
    }
    return interrupted ? 0 : failed("send", ETIMEDOUT, NULL, "the senders did not start within 5 s");
}

static void set_senders(const struct session *session, const uint64_t quotas[MAX_STREAMS]) {
    memset(live.values, 0, libbpf_num_possible_cpus() * sizeof(*live.values));
    for (unsigned stream = 0; stream < session->streams; stream++) {
        struct sender *sender = &live.values[session->options.cpus.cpus[stream]];
        *sender = (struct sender){
            .sequence = session->sequences[stream],
            .end_sequence = session->sequences[stream] + quotas[stream],
            .interval = pace_interval(session),
            .due = pace_first_due(session, stream),
            .burst_left = session->options.burst,
            .flow = {.stream = stream,
                     .count = flows_of_stream(&session->flows, stream),
                     .first = session->sequences[stream]},
            .whole_from = live.memory->restores ? session->sequences[stream] : ALL_ONES,
        };
        draw_begin(&sender->stamped, session->seed, 2 * stream, session->options.stamp_every);
        draw_begin(&sender->looked_at, session->seed, 2 * stream + 1, look_every(&session->options));
    }
}

static void live_go(const struct send_window *window) {
    live.memory->window.end_ns = window->end_ns;
    atomic_store((_Atomic uint64_t *)&live.memory->window.start_ns, window->start_ns);
}

static int live_arm(struct session *session, const uint64_t quotas[MAX_STREAMS]) {
    const uint32_t zero = 0;
    int error = session->options.plain ? link_counts(session->options.interface, &live.counted) : 0;

    if (error)
        return error;
    live_go(&(struct send_window){0});
    live.plain_sent = live.plain_stopped_ns = 0;
    set_senders(session, quotas);
    if (bpf_map_update_elem(live.senders, &zero, live.values, 0))
        return failed("send", errno, NULL, "the senders' state cannot be set");
    error = histograms_reset(live.lateness, live.late_values);
    if (error)
        return error;
    if (!live.refused_missing)
        refused_begin();
    return workers_start(session, live_work) ?: wait_until_armed(session);
}

// The device does not tell its streams apart: the first one stands for all.
static int read_plain(const struct session *session, struct stream_counts counts[MAX_STREAMS]) {
    const uint32_t before = live.counted.sent;
    int error = link_counts(session->options.interface, &live.counted);

    live.plain_sent += live.counted.sent - before;
    memset(counts, 0, session->streams * sizeof(*counts));
    counts[0] = (struct stream_counts){.sent = live.plain_sent, .stopped_ns = live.plain_stopped_ns};
    return error;
}

static int live_read(const struct session *session, struct stream_counts counts[MAX_STREAMS]) {
    if (session->options.plain)
        return read_plain(session, counts);
    int error = read_senders();

    for (unsigned stream = 0; !error && stream < session->streams; stream++) {
        const struct sender *sender = &live.values[session->options.cpus.cpus[stream]];
        counts[stream] = (struct stream_counts){
            .sent = sender->sequence - session->sequences[stream],
            .stopped_ns = sender->stopped_ns,
            .looks = sender->looks,
            .latest_ns = sender->latest_ns,
            .late_packets = sender->late_packets,
            .restored = sender->whole_from != ALL_ONES,
        };
        if (counts[stream].restored)
            counts[stream].unrestored = sender->whole_from - session->sequences[stream];
    }
    return error;
}

static int live_lateness(const struct session *session, struct histogram *sum) {
    (void)session;
    return histograms_read(live.lateness, live.late_values, sum);
}

static int live_stop(struct session *session) {
    if (session->options.plain) {
        live_go(&(struct send_window){0});
        live.memory->sending = 0;
        live.plain_stopped_ns = now_ns();
    }
    return workers_stop();
}

static int live_errors(const struct session *session, uint64_t sent, uint64_t *errors, const char **why) {
    *why = session->options.alone ? "the frames do not leave: --alone" : live.refused_missing;
    *errors = *why ? 0 : refused_read(sent);
    return 0;
}

static void live_close(void) {
    hold_close();
    refused_close();
    bpf_object__close(live.object);
    free(live.values);
    free(live.late_values);
}

const struct engine live_engine = {
    .name = "live",
    .batch = live_batch,
    .streams = live_streams,
    .queue_of = live_queue_of,
    .open = live_open,
    .arm = live_arm,
    .go = live_go,
    .release = live_release,
    .read = live_read,
    .lateness = live_lateness,
    .stop = live_stop,
    .errors = live_errors,
    .close = live_close,
};
