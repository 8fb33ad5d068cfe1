// SPDX-License-Identifier: Apache-2.0
#include "burst.h"
#include "clock.h"
#include "counts.h"
#include "engine.h"
#include "receive.h"
#include "report.h"
#include "thread.h"
#include "workers.h"

#include <linux/if_ether.h>
#include <string.h>

#define LEAD_NS NS_PER_MS // from telling the senders to the window's start
// A signal or the end of --max-frames is noticed within this time
#define SLICE_NS (10 * NS_PER_MS)
#define INTERVAL_NS (100 * NS_PER_MS)
#define INTERVALS 4                // the least a burst has: whether its rate was steady is asked of them
#define SETTLE_INTERRUPTED_S 0.005 // counters are read at rest even then
#define LOOK_NS (NS_PER_MS / 4)
#define LOOKS_AT_REST 4   // in a row, that see nothing new: what came back is all
#define LOOKS_UNSURE 32   // as many, where it is all only if foreign frames are counted as ours
#define PACED_SHARE 0.999 // a paced burst that offers less was limited

struct burst {
    struct session *session;
    const struct burst_request *request;
    struct send_window window;
    uint64_t quota;
    uint64_t stopped_ns;              // told to stop before the window's end; 0: not
    uint64_t tx_packets, rx_packets;  // at the last interval
    uint64_t watched_ns, cpu_ns;      // how long the senders were watched, and their CPU time in it
    uint64_t rx_window, rx_window_ns; // received when the window ended, and when that was since it began
    struct stream_counts counts[MAX_STREAMS];
};

static uint64_t sent(const struct burst *burst) {
    uint64_t sum = 0;

    for (unsigned stream = 0; stream < burst->session->streams; stream++)
        sum += burst->counts[stream].sent;
    return sum;
}

// Divides --max-frames among the streams. Returns the sum.
static uint64_t share_quota(const struct session *session, uint64_t quotas[MAX_STREAMS]) {
    const uint64_t total = session->options.max_frames ?: UINT64_MAX / 2;

    for (unsigned stream = 0; stream < session->streams; stream++)
        quotas[stream] = total / session->streams + (stream < total % session->streams);
    return total;
}

static int print_interval(struct burst *burst, uint64_t now) {
    const struct session *session = burst->session;
    const bool receives = !session->options.no_receive && session->recognised;
    struct receive_counters rx = {0};
    int error = session->engine->read(session, burst->counts) ?: receives ? counts_read(&rx) : 0;
    uint64_t tx_new = sent(burst) - burst->tx_packets, rx_new = counts_packets(&rx) - burst->rx_packets;

    if (error)
        return error;
    report_interval(session, burst->request->name, (double)(now - burst->window.start_ns) / NS_PER_SECOND,
                    tx_new, receives ? &rx_new : NULL);
    burst->tx_packets += tx_new;
    burst->rx_packets += rx_new;
    return 0;
}

// What has come back while the window lasts; what comes later is the rings' drain.
static int count_window(struct burst *burst) {
    struct receive_counters rx = {0};
    uint64_t now = now_ns();
    int error = burst->session->options.no_receive ? 0 : counts_read(&rx);

    burst->rx_window_ns = now - burst->window.start_ns;
    burst->rx_window = counts_packets(&rx);
    return error;
}

// Until the window ends, the frames are used up, or a signal comes.
static int watch(struct burst *burst) {
    const struct session *session = burst->session;
    const uint64_t length = (burst->window.end_ns - burst->window.start_ns) / INTERVALS;
    const uint64_t interval = length < INTERVAL_NS ? length : INTERVAL_NS;
    const uint64_t began = now_ns(), cpu_before = workers_cpu_ns();
    uint64_t next = burst->window.start_ns + interval, now;
    int error = 0;

    while ((now = now_ns()) < burst->window.end_ns && !interrupted && !error) {
        if (now >= next) {
            error = print_interval(burst, now);
            next += interval;
        }
        counts_follow_clock();
        error = error ?: workers_check() ?: session->engine->read(session, burst->counts);
        if (sent(burst) >= burst->quota)
            break;
        uint64_t wake = now + SLICE_NS < next ? now + SLICE_NS : next;
        sleep_until_ns(wake < burst->window.end_ns ? wake : burst->window.end_ns);
    }
    if (now < burst->window.end_ns)
        burst->stopped_ns = now;
    error = error ?: count_window(burst);
    burst->cpu_ns = workers_cpu_ns() - cpu_before;
    burst->watched_ns = now_ns() - began;
    return error;
}

static uint64_t max(uint64_t a, uint64_t b) { return a > b ? a : b; }

// The longest any stream went on sending, as it noticed itself, or the kernel took its frames.
static double duration(const struct burst *burst) {
    const uint64_t unnoticed = burst->stopped_ns ?: burst->window.end_ns;
    uint64_t last = burst->window.start_ns;

    for (unsigned stream = 0; stream < burst->session->streams; stream++)
        last = max(max(last, burst->counts[stream].stopped_ns ?: unnoticed), burst->counts[stream].taken_ns);
    return (double)(last - burst->window.start_ns) / NS_PER_SECOND;
}

// Recorded frames have the rate that the file has in so long.
static double rate_requested(const struct burst *burst) {
    const double seconds = burst->request->seconds;

    if (!burst->session->options.recorded)
        return burst->session->options.rate_pps;
    return burst->session->engine->due(seconds * NS_PER_SECOND) / seconds;
}

static const char *limited(const struct burst *burst) {
    const double rate = rate_requested(burst);
    const uint64_t packets = sent(burst);

    if (interrupted)
        return "interrupted by a signal";
    if (packets >= burst->quota)
        return "--max-frames was reached";
    if (rate && packets + 1 < rate * burst->request->seconds * PACED_SHARE)
        return "the sender could not keep the pace";
    return NULL;
}

// A sender that stands still when the window ends has not looked at the clock since.
static struct looks looks_until_end(const struct burst *burst, const struct stream_counts *counts) {
    struct looks looks = counts->looks;

    if (!counts->stopped_ns && !burst->stopped_ns)
        look(&looks, burst->window.end_ns);
    return looks;
}

// The sizes of a stream's frames follow from their numbers.
static void add_sizes(const struct session *session, unsigned stream, uint64_t frames,
                      struct size_counts *sum) {
    const unsigned count = session->options.sizes.count;
    const uint64_t first = session->sequences[stream];

    for (unsigned i = 0; i < count; i++)
        sum->frames[frame_size_index(count, first + i)] += frames / count + (i < frames % count);
}

// With FCS, as all sizes of the output.
static uint64_t bytes_of(const struct frame_sizes *sizes, const struct size_counts *counts) {
    uint64_t bytes = 0;

    for (unsigned i = 0; i < sizes->count; i++)
        bytes += counts->frames[i] * (sizes->bytes[i] + ETH_FCS_LEN);
    return bytes;
}

static void sum_up(const struct burst *burst, struct burst_report *report) {
    const struct session *session = burst->session;

    *report = (struct burst_report){
        .name = burst->request->name,
        .duration_s = duration(burst),
        .tx_packets = sent(burst),
        .rate_pps = rate_requested(burst),
        .limited = limited(burst),
        .rx_window_packets = burst->rx_window,
        .rx_window_s = (double)burst->rx_window_ns / NS_PER_SECOND,
        .tx_busy_cores = (double)burst->cpu_ns / burst->watched_ns,
        .interrupted = interrupted,
    };
    for (unsigned stream = 0; stream < session->streams; stream++) {
        const struct stream_counts *counts = &burst->counts[stream];
        report->tx_by_queue[session->engine->queue_of(session, stream)] += counts->sent;
        report->tx_bytes += session->recognised ? 0 : counts->bytes + counts->sent * ETH_FCS_LEN;
        add_sizes(session, stream, counts->sent, &report->tx_sizes);
        const struct looks looks = looks_until_end(burst, counts);
        report->tx_pause_max_ns = max(report->tx_pause_max_ns, looks.longest_ns);
        report->tx_paused_ns = max(report->tx_paused_ns, looks.paused_ns);
        report->tx_late_packets += counts->late_packets;
        report->restored |= counts->restored;
        report->unrestored += counts->unrestored;
        report->tx_late_max_ns = max(report->tx_late_max_ns, counts->latest_ns);
    }
    if (session->recognised)
        report->tx_bytes = bytes_of(&session->options.sizes, &report->tx_sizes);
    if (session->options.no_receive)
        report->rx_missing = "--no-receive";
    else if (!session->recognised)
        report->rx_missing = "frames of a file carry no run id and no number";
}

static int print_result(const struct burst *burst) {
    const struct session *session = burst->session;
    static struct burst_report report; // its histograms are too large for a stack
    uint64_t errors = 0;
    int error = 0;

    sum_up(burst, &report);
    if (!session->options.no_receive) {
        report.rx_flows = counts_read_flows(session);
        error = counts_read(&report.rx) ?: counts_read_sizes(&report.rx_sizes) ?: counts_read_from_due(&report.from_due);
    }
    error = error ?: session->engine->lateness(session, &report.late);
    if (session->options.tx_device_stamps)
        session->engine->stamps(session, &report.stamps);
    error = error ?: session->engine->errors(session, report.tx_packets, &errors, &report.tx_errors_missing);
    if (error)
        return error;
    report.tx_errors = errors;
    report_summary(session, &report);
    report_histograms(session, &report);
    return 0;
}

static int send_frames(struct burst *burst) {
    struct session *session = burst->session;
    uint64_t quotas[MAX_STREAMS];
    int error;

    burst->quota = share_quota(session, quotas);
    error = session->engine->arm(session, quotas);
    burst->window.start_ns = now_ns() + LEAD_NS;
    burst->window.end_ns = burst->window.start_ns + burst->request->seconds * NS_PER_SECOND;
    if (!error) {
        if (!session->options.no_receive)
            counts_schedule(session, burst->window.start_ns);
        session->engine->go(&burst->window);
        error = watch(burst);
    }
    int stop_error = session->engine->stop(session);
    return error ?: stop_error ?: print_interval(burst, now_ns());
}

// Waits until all that was sent is back and nothing new comes, --settle at most. If frames are missing, only
// time tells whether they are late or lost.
static int settle(const struct burst *burst, double most_s) {
    const struct session *session = burst->session;
    const uint64_t end = now_ns() + most_s * NS_PER_SECOND, all = sent(burst);
    const bool counts = !session->options.no_receive && session->recognised;
    static struct receive_counters rx; // its histogram is large
    uint64_t before = UINT64_MAX, own, now;
    unsigned same = 0;
    bool at_rest = false;

    while (counts && now_ns() + LOOK_NS < end) {
        int error = counts_read(&rx);
        if (error)
            return error;
        // a program of the user's may have rewritten what marks them
        own = counts_packets(&rx) - rx.duplicates;
        now = counts_packets(&rx) + rx.foreign;
        same = now == before && own + rx.foreign >= all ? same + 1 : 0;
        at_rest = same >= (own >= all ? LOOKS_AT_REST : LOOKS_UNSURE);
        if (at_rest)
            break;
        before = now;
        sleep_until_ns(now_ns() + LOOK_NS);
    }
    if (!at_rest)
        sleep_until_ns(end);
    return 0;
}

int burst_run(struct session *session, const struct burst_request *request) {
    struct burst burst = {.session = session, .request = request};
    int error = 0;

    if (!session->options.no_receive)
        error = counts_begin(session);
    error = error ?: send_frames(&burst);
    if (error)
        return error;
    const double settle_s = interrupted ? SETTLE_INTERRUPTED_S : session->options.settle_s;
    // a device may count a frame as sent when its peer has it
    error = settle(&burst, settle_s) ?: session->engine->read(session, burst.counts) ?: print_result(&burst);
    for (unsigned stream = 0; stream < session->streams; stream++)
        session->sequences[stream] += burst.counts[stream].sent;
    session->seed++;
    return error;
}
