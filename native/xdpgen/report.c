// SPDX-License-Identifier: Apache-2.0
#include "report.h"
#include "error.h"
#include "histograms.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void end_line(void) {
    puts("}");
    fflush(stdout);
}

static void print_string(const char *text) {
    putchar('"');
    for (const unsigned char *c = (const unsigned char *)text; *c; c++)
        if (*c < ' ' || *c == '"' || *c == '\\' || *c >= 0x7f)
            printf("\\u%04x", *c);
        else
            putchar(*c);
    putchar('"');
}

static void string_field(const char *key, const char *text) {
    printf(",\"%s\":", key);
    if (text)
        print_string(text);
    else
        printf("null");
}

static void count_field(const char *key, uint64_t value) { printf(",\"%s\":%" PRIu64, key, value); }

static void optional_field(const char *key, const __u64 *value) {
    if (value)
        count_field(key, *value);
    else
        printf(",\"%s\":null", key);
}

static void bool_field(const char *key, bool value) { printf(",\"%s\":%s", key, value ? "true" : "false"); }

static void list_field(const char *key, const __u64 *values, unsigned count) {
    printf(",\"%s\":[", key);
    for (unsigned i = 0; i < count; i++)
        printf("%s%" PRIu64, i ? "," : "", (uint64_t)values[i]);
    putchar(']');
}

static void mac_field(const char *key, const uint8_t mac[6]) {
    printf(",\"%s\":\"%02x:%02x:%02x:%02x:%02x:%02x\"", key, mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]);
}

static void ip_field(const char *key, uint32_t network_order) {
    string_field(key, inet_ntoa((struct in_addr){network_order}));
}

static void rate_field(double rate_pps) {
    if (rate_pps)
        printf(",\"rate_requested_pps\":%.15g", rate_pps);
    else
        printf(",\"rate_requested_pps\":null");
}

static void ready_addresses(const struct options *options) {
    mac_field("src_mac", options->src_mac);
    mac_field("dst_mac", options->dst_mac);
    ip_field("src_ip", options->src_ip);
    ip_field("dst_ip", options->dst_ip);
    ip_field("src_ip_stride", htonl(options->src_ip_stride));
    ip_field("dst_ip_stride", htonl(options->dst_ip_stride));
    count_field("src_port", options->src_port);
    count_field("dst_port", options->dst_port);
    count_field("port_stride", options->port_stride);
}

static void ready_threads(const struct session *session) {
    __u64 cpus[MAX_STREAMS];

    for (unsigned i = 0; i < session->options.cpus.count; i++)
        cpus[i] = session->options.cpus.cpus[i];
    list_field("cpus", cpus, session->options.cpus.count);
    count_field("streams", session->streams);
    string_field("sched_policy", session->sched_policy);
}

void report_ready(const struct session *session) {
    const struct options *options = &session->options;

    printf("{\"type\":\"ready\"");
    string_field("engine", session->engine->name);
    string_field("interface", options->interface);
    count_field("queues", options->queues);
    count_field("queues_reached", session_queues_reached(session));
    ready_threads(session);
    optional_field("frame_bytes", session->recognised ? &(__u64){options->frame_bytes} : NULL);
    string_field("frames", options->frames);
    count_field("flows", options->flows);
    rate_field(options->rate_pps);
    printf(",\"run_id\":\"%04x\"", options->run_id);
    ready_addresses(options);
    count_field("stamp_every", session->recognised ? options->stamp_every : 0);
    optional_field("max_frames", options->max_frames ? &(__u64){options->max_frames} : NULL);
    count_field("batch", options->batch);
    printf(",\"settle_s\":%g", options->settle_s);
    bool_field("receives", !options->no_receive);
    end_line();
}

void report_interval(const char *burst, double t_s, uint64_t tx_packets, const __u64 *rx_packets) {
    printf("{\"type\":\"interval\"");
    string_field("burst", burst);
    printf(",\"t_s\":%.6f", t_s);
    count_field("tx_packets", tx_packets);
    optional_field("rx_packets", rx_packets);
    end_line();
}

static unsigned rx_queues_seen(const struct session *session, const struct receive_counters *rx) {
    unsigned seen = session->options.queues;

    for (unsigned queue = seen; queue < MAX_QUEUES; queue++)
        if (rx->by_queue[queue])
            seen = queue + 1;
    return seen;
}

/* One field per counter; all of them null, with the reason, where nothing
 * looked. */
static void summary_rx(const struct session *session, const struct burst_report *report) {
    const struct receive_counters *rx = &report->rx;
    const uint64_t packets = receive_packets(rx);
    const uint64_t unique = packets - rx->duplicates;
    const uint64_t lost = report->tx_packets > unique ? report->tx_packets - unique : 0;
    const struct {
        const char *key;
        __u64 value;
    } fields[] = {
        {"rx_packets", packets},          {"lost_packets", lost},         {"duplicates", rx->duplicates},
        {"reordered", rx->reordered},     {"stale_packets", rx->stale},   {"foreign_packets", rx->foreign},
        {"damaged_packets", rx->damaged}, {"bad_run_id", rx->bad_run_id}, {"bad_stamps", rx->bad_stamps},
    };

    string_field("rx_missing", report->rx_missing);
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        optional_field(fields[i].key, report->rx_missing ? NULL : &fields[i].value);
    optional_field("rx_window_packets", report->rx_missing ? NULL : &report->rx_window_packets);
    printf(",\"rx_window_s\":%.9f", report->rx_window_s);
    if (report->rx_missing)
        printf(",\"rx_by_queue\":null");
    else
        list_field("rx_by_queue", rx->by_queue, rx_queues_seen(session, rx));
}

void report_summary(const struct session *session, const struct burst_report *report) {
    const bool paced = session->options.rate_pps > 0;

    printf("{\"type\":\"summary\"");
    string_field("burst", report->name);
    printf(",\"duration_s\":%.9f", report->duration_s);
    count_field("tx_packets", report->tx_packets);
    summary_rx(session, report);
    optional_field("tx_errors", report->tx_errors_missing ? NULL : &report->tx_errors);
    string_field("tx_errors_missing", report->tx_errors_missing);
    list_field("tx_by_queue", report->tx_by_queue, session->options.queues);
    rate_field(session->options.rate_pps);
    optional_field("tx_pause_max_ns", paced ? NULL : &report->tx_pause_max_ns);
    optional_field("tx_paused_ns", paced ? NULL : &report->tx_paused_ns);
    printf(",\"tx_busy_cores\":%.6f", report->tx_busy_cores);
    optional_field("tx_late_max_ns", paced ? &report->tx_late_max_ns : NULL);
    optional_field("tx_late_packets", paced ? &report->tx_late_packets : NULL);
    string_field("limited", report->limited);
    bool_field("interrupted", report->interrupted);
    end_line();
}

static void print_buckets(const __u64 buckets[HISTOGRAM_BUCKETS]) {
    const char *separator = "";

    printf(",\"buckets\":[");
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
        if (buckets[i]) {
            printf("%s[%" PRIu64 ",%" PRIu64 "]", separator, histogram_lower_bound(i), (uint64_t)buckets[i]);
            separator = ",";
        }
    putchar(']');
}

static void print_histogram(const char *burst, const char *of, const struct histogram *histogram) {
    const uint64_t count = histogram_count(histogram);

    printf("{\"type\":\"histogram\"");
    string_field("burst", burst);
    string_field("of", of);
    printf(",\"unit\":\"ns\",\"scheme\":\"log-linear\",\"sub_bits\":%d", SUB_BITS);
    count_field("count", count);
    optional_field("min", count ? &histogram->min : NULL);
    optional_field("max", count ? &histogram->max : NULL);
    count_field("sum", count ? histogram->sum : 0);
    print_buckets(histogram->buckets);
    end_line();
}

void report_histograms(const struct session *session, const struct burst_report *report) {
    if (session->options.rate_pps) {
        print_histogram(report->name, "lateness", &report->late);
        if (!report->rx_missing)
            print_histogram(report->name, "from_due", &report->from_due);
    }
    print_histogram(report->name, "from_sent", &report->rx.latency);
}

void report_detached(unsigned bursts) {
    printf("{\"type\":\"detached\",\"bursts\":%u", bursts);
    end_line();
}

void report_error(void) {
    printf("{\"type\":\"error\"");
    string_field("step", failure.step);
    count_field("errno", failure.error);
    string_field("error", strerrorname_np(failure.error));
    string_field("message", failure.message);
    if (failure.log)
        string_field("log", failure.log);
    end_line();
}
