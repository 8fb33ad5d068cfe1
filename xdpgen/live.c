// SPDX-License-Identifier: Apache-2.0
/*
 * Engine `live`: the kernel runs send.bpf.c on frames of its own making and sends what it returns XDP_TX for
 * (BPF_PROG_TEST_RUN with BPF_F_TEST_XDP_LIVE_FRAMES). One call, which takes tens of milliseconds to set up,
 * lasts a whole burst: the program itself waits for the window, keeps the pace and stops.
 */
#include "clock.h"
#include "engine.h"
#include "error.h"
#include "object.h"
#include "workers.h"

#include <errno.h>
#include <limits.h>
#include <linux/if_ether.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#define FULL_BATCH 64 /* one NAPI poll of the receiver */
#define PACED_BATCH 1 /* a frame leaves when its batch ends */
#define ARM_LIMIT_NS (5 * NS_PER_SECOND)

static struct {
    struct bpf_object *object, *accepted;
    struct bpf_link *accepted_link;
    const char *accepted_missing; /* why there is no count of accepted frames */
    uint64_t accepted_before;
    int program, senders, window;
    unsigned batch;
    struct xdp_md context;
    char frame[ETH_FRAME_LEN + 4];
    struct sender *values; /* one per possible CPU */
} live;

static unsigned live_streams(const struct options *options) { return options->cpus.count; }

static unsigned live_queue_of(const struct session *session, unsigned stream) {
    return session->options.cpus.cpus[stream] % session->options.queues;
}

static int load_heads(const struct session *session) {
    int heads = object_map_fd(live.object, "heads");

    for (unsigned flow = 0; flow < session->flows; flow++)
        if (bpf_map_update_elem(heads, &flow, &session->heads[flow], 0))
            return fail("load", errno, "the headers of flow %u cannot be stored", flow);
    return 0;
}

static int load_sender(const struct session *session) {
    const struct send_settings settings = {
        .paced = session->options.rate_pps > 0,
        .stamp_every = session->options.stamp_every,
        .streams = session->streams,
        .flows = session->flows,
    };
    int error;

    live.object = OBJECT_OPEN(send, &settings);
    if (!live.object)
        return -failure.error;
    bpf_map__set_max_entries(bpf_object__find_map_by_name(live.object, "heads"), session->flows);
    error = object_load(live.object);
    if (error)
        return error;
    live.program = object_program_fd(live.object, "send_frame");
    live.senders = object_map_fd(live.object, "senders");
    live.window = object_map_fd(live.object, ".bss");
    return load_heads(session);
}

/* Wanted, not needed: without it tx_errors is null, and the summary says why. */
static void load_accepted(const struct session *session) {
    struct stat netns;
    struct accepted_settings settings = {.ifindex = session->ifindex};

    live.accepted_missing = "the kernel does not let the tracepoint xdp_devmap_xmit be read";
    if (stat("/proc/self/ns/net", &netns))
        return;
    settings.netns = netns.st_ino;
    live.accepted = OBJECT_OPEN(accepted, &settings);
    if (!live.accepted || bpf_object__load(live.accepted))
        return;
    live.accepted_link =
        bpf_program__attach(bpf_object__find_program_by_name(live.accepted, "count_accepted"));
    if (live.accepted_link)
        live.accepted_missing = NULL;
}

static int live_open(struct session *session) {
    const struct options *options = &session->options;
    unsigned bytes = options->frame_bytes - ETH_FCS_LEN;
    int error = load_sender(session);

    if (error)
        return error;
    load_accepted(session);
    live.batch = options->batch ?: options->rate_pps ? PACED_BATCH : FULL_BATCH;
    live.context = (struct xdp_md){.data_end = bytes, .ingress_ifindex = session->ifindex};
    memcpy(live.frame, &session->heads[0], sizeof(session->heads[0]));
    live.values = per_cpu_values(sizeof(*live.values));
    return live.values ? 0 : fail("load", ENOMEM, "no memory for the senders' state");
}

static void live_work(struct worker *worker) {
    while (!workers_stopping()) {
        LIBBPF_OPTS(bpf_test_run_opts, run, .data_in = live.frame, .data_size_in = live.context.data_end,
                    .ctx_in = &live.context, .ctx_size_in = sizeof(live.context), .repeat = INT_MAX,
                    .flags = BPF_F_TEST_XDP_LIVE_FRAMES, .batch_size = live.batch);
        int error = bpf_prog_test_run_opts(live.program, &run);
        if (error && error != -EINTR) {
            worker->what = "cannot send live frames (they need an XDP program or GRO on the device)";
            worker->error = error;
            return;
        }
    }
}

static int read_senders(void) {
    const uint32_t zero = 0;

    if (bpf_map_lookup_elem(live.senders, &zero, live.values))
        return fail("send", errno, "the senders' state cannot be read");
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
    uint64_t limit = clock_now_ns() + ARM_LIMIT_NS;

    while (clock_now_ns() < limit && !interrupted) {
        int error = workers_check() ?: read_senders();
        if (error || all_armed(session))
            return error;
        clock_sleep_until(clock_now_ns() + NS_PER_MS);
    }
    return interrupted ? 0 : fail("send", ETIMEDOUT, "the senders did not start within 5 s");
}

static int64_t read_accepted(void) {
    uint64_t *counts = per_cpu_values(sizeof(*counts)), sum = 0;
    const uint32_t zero = 0;

    if (!counts || bpf_map_lookup_elem(object_map_fd(live.accepted, "accepted"), &zero, counts)) {
        free(counts);
        return -1;
    }
    for (int cpu = 0; cpu < libbpf_num_possible_cpus(); cpu++)
        sum += counts[cpu];
    free(counts);
    return sum;
}

static void set_senders(const struct session *session, const uint64_t quotas[MAX_STREAMS]) {
    memset(live.values, 0, libbpf_num_possible_cpus() * sizeof(*live.values));
    for (unsigned stream = 0; stream < session->streams; stream++)
        live.values[session->options.cpus.cpus[stream]] = (struct sender){
            .sequence = session->sequences[stream],
            .end_sequence = session->sequences[stream] + quotas[stream],
            .interval = engine_interval(session),
            .due = engine_first_due(session, stream),
            .flow = stream,
            .stream = stream,
            .until_stamp = 1,
        };
}

static int live_go(const struct send_window *window) {
    const uint32_t zero = 0;

    if (bpf_map_update_elem(live.window, &zero, window, 0))
        return fail("send", errno, "the burst's window cannot be set");
    return 0;
}

static int live_arm(struct session *session, const uint64_t quotas[MAX_STREAMS]) {
    const struct send_window closed = {0};
    const uint32_t zero = 0;
    int error = live_go(&closed);

    if (error)
        return error;
    set_senders(session, quotas);
    if (bpf_map_update_elem(live.senders, &zero, live.values, 0))
        return fail("send", errno, "the senders' state cannot be set");
    if (!live.accepted_missing)
        live.accepted_before = read_accepted();
    return workers_start(session, live_work) ?: wait_until_armed(session);
}

static int live_read(const struct session *session, struct stream_counts counts[MAX_STREAMS]) {
    int error = read_senders();

    for (unsigned stream = 0; !error && stream < session->streams; stream++) {
        const struct sender *sender = &live.values[session->options.cpus.cpus[stream]];
        counts[stream] = (struct stream_counts){
            .sent = sender->sequence - session->sequences[stream],
            .stopped_ns = sender->stopped_ns,
            .longest_pause_ns = sender->longest_pause_ns,
            .latest_ns = sender->latest_ns,
        };
    }
    return error;
}

static int live_stop(struct session *session) {
    (void)session;
    return workers_stop();
}

static int live_errors(const struct session *session, uint64_t sent, uint64_t *errors, const char **why) {
    (void)session;
    *why = live.accepted_missing;
    if (*why)
        return 0;
    int64_t accepted = read_accepted();
    if (accepted < 0)
        return fail("send", errno, "the count of accepted frames cannot be read");
    accepted -= live.accepted_before;
    *errors = sent > (uint64_t)accepted ? sent - accepted : 0;
    return 0;
}

static void live_close(void) {
    bpf_link__destroy(live.accepted_link);
    bpf_object__close(live.accepted);
    bpf_object__close(live.object);
    free(live.values);
}

const struct engine live_engine = {
    .name = "live",
    .streams = live_streams,
    .queue_of = live_queue_of,
    .open = live_open,
    .arm = live_arm,
    .go = live_go,
    .read = live_read,
    .stop = live_stop,
    .errors = live_errors,
    .close = live_close,
};
