// SPDX-License-Identifier: Apache-2.0
#include "report.h"
#include "counts.h"
#include "histograms.h"
#include "json.h"
#include "offers.h"
#include "receive.h"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <stdio.h>
#include <string.h>

static void optional_count(const char *key, bool there, uint64_t value) {
    if (there)
        json_count(key, value);
    else
        json_null(key);
}

static void list_field(const char *key, const uint64_t *values, unsigned count) {
    json_open_array(key);
    for (unsigned i = 0; i < count; i++)
        json_count(NULL, values[i]);
    json_close();
}

// Frames by size, FCS included, smallest first: [[64, 7], [594, 4]]. Null where all have one size.
static void sizes_field(const char *key, const struct session *session, const struct size_counts *counts) {
    const struct frame_sizes *sizes = &session->options.sizes;
    unsigned bytes = 0, next;
    uint64_t frames;

    if (!session->recognised || sizes->count == 1 || !counts) {
        json_null(key);
        return;
    }
    json_open_array(key);
    for (; bytes < sizes->largest; bytes = next) {
        next = sizes->largest;
        frames = 0;
        for (unsigned i = 0; i < sizes->count; i++)
            if (sizes->bytes[i] > bytes && sizes->bytes[i] < next)
                next = sizes->bytes[i];
        for (unsigned i = 0; i < sizes->count; i++)
            frames += sizes->bytes[i] == next ? counts->frames[i] : 0;
        list_field(NULL, (uint64_t[]){next + ETH_FCS_LEN, frames}, 2);
    }
    json_close();
}

static void mac_field(const char *key, const uint8_t mac[6]) {
    char text[18];

    snprintf(text, sizeof(text), "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4],
             mac[5]);
    json_string(key, text);
}

static void ip_field(const char *key, uint32_t network_order) {
    json_string(key, inet_ntoa((struct in_addr){network_order}));
}

static void rate_field(double rate_pps) {
    if (rate_pps)
        json_number("rate_requested_pps", rate_pps);
    else
        json_null("rate_requested_pps");
}

static void ready_addresses(const struct options *options) {
    mac_field("src_mac", options->src_mac);
    mac_field("dst_mac", options->dst_mac);
    ip_field("src_ip", options->src_ip);
    ip_field("dst_ip", options->dst_ip);
    ip_field("src_ip_stride", htonl(options->src_ip_stride));
    ip_field("dst_ip_stride", htonl(options->dst_ip_stride));
    json_count("src_port", options->src_port);
    json_count("dst_port", options->dst_port);
    json_count("port_stride", options->port_stride);
}

static void ready_threads(const struct session *session) {
    uint64_t cpus[MAX_STREAMS];

    for (unsigned i = 0; i < session->options.cpus.count; i++)
        cpus[i] = session->options.cpus.cpus[i];
    list_field("cpus", cpus, session->options.cpus.count);
    json_count("streams", session->streams);
    json_string("sched_policy", session->sched_policy);
}

// What the sockets are; each null where the engine has none.
static void ready_socket(const struct session *session) {
    const struct options *options = &session->options;
    const bool has = session->engine->socket != NULL;
    const struct socket_state state = has ? session->engine->socket() : (struct socket_state){0};

    json_string("bind", !has ? NULL : state.zerocopy ? "zerocopy" : "copy");
    if (has)
        json_bool("need_wakeup", options->need_wakeup);
    else
        json_null("need_wakeup");
    optional_count("busy_poll_us", has, options->busy_poll_us);
    json_string("busy_poll_missing", options->busy_poll_us && !state.napi
                                         ? "the kernel gave the socket no NAPI instance to poll"
                                         : NULL);
}

// Who stamps, and what the sending device offers to AF_XDP.
static void ready_stamps(const struct session *session) {
    uint64_t offers;
    const bool told = !offers_read(session->ifindex, &offers);

    json_string("rx_stamp", session->options.device_stamps ? "device" : "software");
    json_string("tx_stamp", session->options.tx_device_stamps ? "device" : "software");
    json_string("tx_offers", told ? offers_text(offers) : NULL);
}

// Of the one size, or of the cycle.
static void ready_sizes(const struct session *session) {
    const struct frame_sizes *sizes = &session->options.sizes;
    const bool one = sizes->count == 1;
    uint64_t cycle[MOST_SIZES] = {0};

    for (unsigned i = 0; i < sizes->count; i++)
        cycle[i] = sizes->bytes[i] + ETH_FCS_LEN;
    optional_count("frame_bytes", session->recognised && one, cycle[0]);
    if (session->recognised && !one)
        list_field("frame_sizes", cycle, sizes->count);
    else
        json_null("frame_sizes");
}

void report_ready(const struct session *session) {
    const struct options *options = &session->options;
    char run_id[9];

    json_begin("ready");
    json_string("engine", session->engine->name);
    json_string("interface", options->interface);
    json_string("receive_on", options->receive_on);
    json_count("queues", options->queues);
    json_count("queues_reached", session_queues_reached(session));
    ready_threads(session);
    ready_sizes(session);
    optional_count("vlan", options->vlan != NO_VLAN, options->vlan);
    json_count("ip_version", options->ip_version);
    json_string("frames", options->frames);
    json_count("flows", options->flows);
    json_number("zipf", options->zipf);
    json_number("churn", options->churn);
    json_count("flow_seed", options->flow_seed);
    rate_field(options->rate_pps);
    json_count("burst_frames", options->burst);
    snprintf(run_id, sizeof(run_id), "%04x", options->run_id);
    json_string("run_id", run_id);
    ready_addresses(options);
    json_count("stamp_every", session->recognised ? options->stamp_every : 0);
    optional_count("max_frames", options->max_frames, options->max_frames);
    json_count("batch", options->batch);
    ready_socket(session);
    json_number("settle_s", options->settle_s);
    json_bool("receives", !options->no_receive);
    json_bool("plain", options->plain);
    ready_stamps(session);
    json_string("not_held", session->not_held);
    json_end();
}

// Plain frames are counted by the device alone, and some count none of XDP's.
static bool knows_sent(const struct session *session, uint64_t tx_packets) {
    return !session->options.plain || tx_packets;
}

void report_interval(const struct session *session, const char *burst, double t_s, uint64_t tx_packets,
                     const uint64_t *rx_packets) {
    json_begin("interval");
    json_string("burst", burst);
    json_decimal("t_s", t_s, 6);
    optional_count("tx_packets", knows_sent(session, tx_packets), tx_packets);
    optional_count("rx_packets", rx_packets, rx_packets ? *rx_packets : 0);
    json_end();
}

static unsigned rx_queues_seen(const struct session *session, const struct receive_counters *rx) {
    unsigned seen = session->options.queues;

    for (unsigned queue = seen; queue < MAX_QUEUES; queue++)
        if (rx->by_queue[queue])
            seen = queue + 1;
    return seen;
}

static void ranks_field(const struct session *session, const struct receive_counters *rx) {
    const unsigned last = log2_floor((session->flows.count - 1) / session->streams + 1);

    json_open_array("rx_by_rank");
    for (unsigned octave = 0; octave <= last; octave++)
        json_count(NULL, rx->by_octave[octave]);
    json_close();
}

// One field per counter; all of them null, with the reason, where nothing looked.
static void summary_rx(const struct session *session, const struct burst_report *report) {
    const struct receive_counters *rx = &report->rx;
    const uint64_t packets = counts_packets(rx);
    const uint64_t unique = packets - rx->duplicates;
    const uint64_t lost = report->tx_packets > unique ? report->tx_packets - unique : 0;
    const uint64_t bytes = rx->bytes + packets * ETH_FCS_LEN;
    const uint64_t foreign_bytes = rx->foreign_bytes + rx->foreign * ETH_FCS_LEN;
    const bool numbered = !report->rx_missing && !session->options.plain;
    const struct {
        const char *key;
        uint64_t value;
    } fields[] = {
        {"duplicates", rx->duplicates},
        {"reordered", rx->reordered},
        {"stale_packets", rx->stale},
        {"foreign_packets", rx->foreign},
        {"damaged_packets", rx->damaged},
        {"altered_packets", rx->altered},
        {"bad_run_id", rx->bad_run_id},
        {"bad_stamps", rx->bad_stamps + report->stamps.bad},
        {"rx_bytes", bytes},
        {"foreign_bytes", foreign_bytes},
    };

    json_string("rx_missing", report->rx_missing);
    optional_count("rx_packets", !report->rx_missing, packets);
    optional_count("lost_packets", !report->rx_missing && knows_sent(session, report->tx_packets), lost);
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        optional_count(fields[i].key, numbered, fields[i].value);
    optional_count("rx_flows", numbered, report->rx_flows);
    if (session->flows.by_number && numbered)
        ranks_field(session, rx);
    else
        json_null("rx_by_rank");
    optional_count("rx_window_packets", !report->rx_missing, report->rx_window_packets);
    json_decimal("rx_window_s", report->rx_window_s, 9);
    if (!numbered) {
        json_null("rx_by_queue");
        return;
    }
    json_open_array("rx_by_queue");
    for (unsigned queue = 0; queue < rx_queues_seen(session, rx); queue++)
        json_count(NULL, rx->by_queue[queue]);
    json_close();
}

static const struct histogram *latency_of(const struct session *session, const struct burst_report *report) {
    return session->options.tx_device_stamps ? &report->stamps.latency : &report->rx.latency;
}

// NULL where there is one, or where no stamped frame came back.
static const char *no_latency(const struct session *session, const struct burst_report *report) {
    const struct sent_totals *sent = &report->stamps;

    if (histogram_count(latency_of(session, report)))
        return NULL;
    if (session->options.tx_device_stamps && sent->unstamped && !sent->stamped)
        return "the driver gave no time stamp of sending, though it offers tx-timestamp";
    if (report->rx.unstamped)
        return counts_no_stamp();
    return report->rx.arrived ? "no frame that came back has a stamp of sending" : NULL;
}

// Where the device's stamps are asked for: how many frames have them and have none, and why.
static void summary_stamps(const struct session *session, const struct burst_report *report) {
    const struct receive_counters *rx = &report->rx;
    const struct sent_totals *sent = &report->stamps;
    const bool device = session->options.device_stamps && !report->rx_missing;
    const bool both = session->options.tx_device_stamps;
    const char *why = device ? no_latency(session, report) : NULL;

    optional_count("stamp_seed", session->options.stamp_every > 1, session->seed);
    optional_count("rx_unstamped", device, rx->unstamped);
    optional_count("tx_stamped", both, sent->stamped);
    optional_count("tx_unstamped", both, sent->unstamped);
    optional_count("unmatched_stamps", both, rx->arrived - sent->matched);
    json_open_object("missing");
    if (why)
        json_string("latency", why);
    if (!knows_sent(session, report->tx_packets))
        json_string("sent", "the device took no frame, or its driver counts none that XDP sends");
    if (session->options.plain)
        json_string("numbers",
                    "--plain: frames carry neither number nor stamp: the devices count them, and no more");
    json_close();
}

// Live frames come back as the DUT left them; null for other engines.
static void summary_restored(const struct session *session, const struct burst_report *report) {
    const bool live = session->engine == &live_engine && !session->options.plain;

    if (live)
        json_bool("tx_restored", report->restored);
    else
        json_null("tx_restored");
    optional_count("tx_unrestored_packets", live, report->unrestored);
}

void report_summary(const struct session *session, const struct burst_report *report) {
    const bool paced = session_paced(session), plain = session->options.plain;

    json_begin("summary");
    json_string("burst", report->name);
    json_decimal("duration_s", report->duration_s, 9);
    optional_count("tx_packets", knows_sent(session, report->tx_packets), report->tx_packets);
    optional_count("tx_bytes", knows_sent(session, report->tx_packets), report->tx_bytes);
    summary_rx(session, report);
    optional_count("tx_errors", !report->tx_errors_missing, report->tx_errors);
    json_string("tx_errors_missing", report->tx_errors_missing);
    if (plain)
        json_null("tx_by_queue");
    else
        list_field("tx_by_queue", report->tx_by_queue, session->options.queues);
    sizes_field("tx_by_size", session, &report->tx_sizes);
    sizes_field("rx_by_size", session, report->rx_missing ? NULL : &report->rx_sizes);
    rate_field(report->rate_pps);
    optional_count("tx_pause_max_ns", !paced && !plain, report->tx_pause_max_ns);
    optional_count("tx_paused_ns", !paced && !plain, report->tx_paused_ns);
    json_decimal("tx_busy_cores", report->tx_busy_cores, 6);
    optional_count("tx_late_max_ns", paced, report->tx_late_max_ns);
    optional_count("tx_late_packets", paced, report->tx_late_packets);
    summary_restored(session, report);
    summary_stamps(session, report);
    json_string("limited", report->limited);
    json_bool("interrupted", report->interrupted);
    json_end();
}

static void print_buckets(const struct histogram *histogram) {
    json_open_array("buckets");
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
        if (histogram->buckets[i])
            list_field(NULL, (uint64_t[]){histogram_lower_bound(i), histogram->buckets[i]}, 2);
    json_close();
}

static void print_histogram(const char *burst, const char *of, const struct histogram *histogram) {
    const uint64_t count = histogram_count(histogram);

    json_begin("histogram");
    json_string("burst", burst);
    json_string("of", of);
    json_string("unit", "ns");
    json_string("scheme", "log-linear");
    json_count("sub_bits", SUB_BITS);
    json_count("count", count);
    optional_count("min", count, histogram->min);
    optional_count("max", count, histogram->max);
    json_count("sum", count ? histogram->sum : 0);
    print_buckets(histogram);
    json_end();
}

void report_histograms(const struct session *session, const struct burst_report *report) {
    if (session_paced(session)) {
        print_histogram(report->name, "lateness", &report->late);
        if (!report->rx_missing && !session->options.tx_device_stamps)
            print_histogram(report->name, "from_due", &report->from_due);
    }
    print_histogram(report->name, session->options.tx_device_stamps ? "device" : "from_sent",
                    latency_of(session, report));
}

void report_end(const char *type, unsigned bursts) {
    json_begin(type);
    json_count("bursts", bursts);
    json_end();
}
