// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "report.h"
#include "lines.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static void print_sched_policy(unsigned int fifo, int refused) {
    char text[64];
    if (refused)
        snprintf(text, sizeof(text), "SCHED_OTHER (refused: %s)", strerrorname_np(refused));
    else
        snprintf(text, sizeof(text), fifo ? "SCHED_FIFO:%u" : "SCHED_OTHER", fifo);
    print_string("sched_policy", text);
}

void report_ready(const struct queue *queues, unsigned int count, const struct redirect *redirect,
                  unsigned int fifo, int refused) {
    printf("{\"type\":\"ready\",\"queues\":[");
    for (unsigned int i = 0; i < count; i++)
        printf("%s{\"queue\":%u,\"cpu\":%u,\"bind_obtained\":\"%s\"}", i ? "," : "", queues[i].index,
               queues[i].cpu, queues[i].socket.zerocopy ? "zerocopy" : "copy");
    printf("]");
    print_number("program_id", redirect->program_id);
    print_string("mode_obtained", redirect->mode_obtained);
    print_sched_policy(fifo, refused);
    end_line();
}

static void print_queue_stats(const struct queue *queue) {
    const struct queue_counts counts = queue_count(queue);
    const struct xdp_statistics kernel = socket_statistics(&queue->socket);
    printf("{\"queue\":%u", queue->index);
    print_number("rx", counts.rx);
    print_number("tx", counts.tx);
    print_number("tx_dropped", counts.tx_dropped);
    print_number("tx_pending", counts.tx_pending);
    print_number("rx_dropped", kernel.rx_dropped); // the full fill ring's are among them: never add
    print_number("rx_ring_full", kernel.rx_ring_full);
    print_number("fill_ring_empty", kernel.rx_fill_ring_empty_descs);
    print_number("rx_invalid", kernel.rx_invalid_descs);
    print_number("wakeups", __atomic_load_n(&queue->wakeups, __ATOMIC_RELAXED));
    print_number("polls", __atomic_load_n(&queue->polls, __ATOMIC_RELAXED));
    printf("}");
}

static unsigned long long cpu_time_ns(void) {
    struct timespec spent = {0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
    return spent.tv_sec * 1000000000ULL + spent.tv_nsec;
}

void report_stats(const struct queue *queues, unsigned int count, const struct redirect *redirect) {
    printf("{\"type\":\"stats\",\"queues\":[");
    for (unsigned int i = 0; i < count; i++) {
        if (i)
            putchar(',');
        print_queue_stats(&queues[i]);
    }
    printf("]");
    print_number("unbound_packets", redirect_unbound_packets(redirect));
    print_number("cpu_ns", cpu_time_ns());
    end_line();
}

void report_detached(void) {
    printf("{\"type\":\"detached\"");
    end_line();
}
