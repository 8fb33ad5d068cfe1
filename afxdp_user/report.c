// SPDX-License-Identifier: Apache-2.0
#include "report.h"
#include "clock.h"
#include "json.h"

#include <stdio.h>
#include <string.h>

static void print_sched_policy(unsigned fifo, int refused) {
    char text[64];
    if (refused)
        snprintf(text, sizeof(text), "SCHED_OTHER (refused: %s)", strerrorname_np(refused));
    else
        snprintf(text, sizeof(text), fifo ? "SCHED_FIFO:%u" : "SCHED_OTHER", fifo);
    json_string("sched_policy", text);
}

void report_ready(const struct queue *queues, unsigned count, const struct redirect *redirect, unsigned fifo,
                  int refused) {
    json_begin("ready");
    json_open_array("queues");
    for (unsigned i = 0; i < count; i++) {
        json_open_object(NULL);
        json_count("queue", queues[i].index);
        json_count("cpu", queues[i].cpu);
        json_string("bind_obtained", queues[i].socket.zerocopy ? "zerocopy" : "copy");
        json_close();
    }
    json_close();
    json_count("program_id", redirect->program_id);
    json_string("mode_obtained", redirect->mode_obtained);
    print_sched_policy(fifo, refused);
    json_end();
}

static void print_queue_stats(const struct queue *queue) {
    const struct queue_counts counts = queue_count(queue);
    const struct xdp_statistics kernel = socket_statistics(&queue->socket);
    json_open_object(NULL);
    json_count("queue", queue->index);
    json_count("rx", counts.rx);
    if (queue->sizes.count)
        json_count("rx_foreign", counts.foreign);
    else
        json_null("rx_foreign");
    json_count("tx", counts.tx);
    json_count("tx_dropped", counts.tx_dropped);
    json_count("tx_pending", counts.tx_pending);
    json_count("rx_dropped", kernel.rx_dropped); // includes drops for a full fill ring: never add both
    json_count("rx_ring_full", kernel.rx_ring_full);
    json_count("fill_ring_empty", kernel.rx_fill_ring_empty_descs);
    json_count("rx_invalid", kernel.rx_invalid_descs);
    json_count("wakeups", __atomic_load_n(&queue->wakeups, __ATOMIC_RELAXED));
    json_count("polls", __atomic_load_n(&queue->polls, __ATOMIC_RELAXED));
    json_close();
}

void report_stats(const struct queue *queues, unsigned count, const struct redirect *redirect) {
    json_begin("stats");
    json_open_array("queues");
    for (unsigned i = 0; i < count; i++)
        print_queue_stats(&queues[i]);
    json_close();
    json_count("unbound_packets", redirect_unbound_packets(redirect));
    json_count("cpu_ns", clock_ns(CLOCK_PROCESS_CPUTIME_ID));
    json_end();
}

void report_detached(void) {
    json_begin("detached");
    json_end();
}
