// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine.h"
#include "receive.h"

// What one burst came to.
struct burst_report {
    const char *name;
    double duration_s;
    uint64_t tx_packets, tx_bytes; // with FCS
    double rate_pps;               // asked for; 0: max
    uint64_t tx_by_queue[MAX_QUEUES];
    struct size_counts tx_sizes, rx_sizes;
    uint64_t tx_errors;
    const char *tx_errors_missing; // why there is no number
    uint64_t tx_pause_max_ns, tx_paused_ns, tx_late_max_ns, tx_late_packets;
    bool restored;              // live: frames were written whole, because the DUT changed a payload
    uint64_t unrestored;        // those sent before that was noticed
    double tx_busy_cores;       // CPUs that the sending threads kept busy
    uint64_t rx_window_packets; // received until rx_window_s, the window's end; the rest are the rings' drain
    double rx_window_s;
    const char *limited; // what kept it from sending all it was asked to
    bool interrupted;
    const char *rx_missing; // why nothing is known about received frames
    struct receive_counters rx;
    uint64_t rx_flows; // different ones
    struct histogram from_due, late;
    struct sent_totals stamps; // with --tx-stamp device
};

// Each prints one JSON object on a line of its own.
void report_ready(const struct session *session);
void report_interval(const struct session *session, const char *burst, double t_s, uint64_t tx_packets,
                     const uint64_t *rx_packets);
void report_summary(const struct session *session, const struct burst_report *report);
void report_histograms(const struct session *session, const struct burst_report *report);
// `type` is detached or released.
void report_end(const char *type, unsigned bursts);
