// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "report.h"

#include <bpf/libbpf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xdp/libxdp.h>

static char words[4096];

static void keep(const char *format, va_list arguments) {
    char line[1024];
    vsnprintf(line, sizeof(line), format, arguments);
    if (strlen(words) + strlen(line) < sizeof(words))
        strcat(words, line);
}

static int keep_libbpf(enum libbpf_print_level level, const char *format, va_list arguments) {
    if (level == LIBBPF_WARN)
        keep(format, arguments);
    return 0;
}

static int keep_libxdp(enum libxdp_print_level level, const char *format, va_list arguments) {
    if (level == LIBXDP_WARN)
        keep(format, arguments);
    return 0;
}

void collect_words(void) {
    libbpf_set_print(keep_libbpf);
    libxdp_set_print(keep_libxdp);
}

void forget_words(void) { words[0] = '\0'; }

static void print_string(const char *key, const char *value) {
    printf(",\"%s\":\"", key);
    for (const unsigned char *at = (const unsigned char *)value; *at; at++) {
        if (*at == '"' || *at == '\\')
            printf("\\%c", *at);
        else if (*at < 0x20)
            printf("\\u%04x", *at);
        else
            putchar(*at);
    }
    putchar('"');
}

static void print_number(const char *key, unsigned long long value) { printf(",\"%s\":%llu", key, value); }

static void end_line(void) {
    puts("}");
    fflush(stdout); // fully buffered until here
}

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

void report_stats(const struct queue *queues, unsigned int count, const struct redirect *redirect) {
    printf("{\"type\":\"stats\",\"queues\":[");
    for (unsigned int i = 0; i < count; i++) {
        if (i)
            putchar(',');
        print_queue_stats(&queues[i]);
    }
    printf("]");
    print_number("unbound_packets", redirect_unbound_packets(redirect));
    end_line();
}

void report_detached(void) {
    printf("{\"type\":\"detached\"");
    end_line();
}

void fail(const char *step, int error, const char *format, ...) {
    char message[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    const char *name = strerrorname_np(error);
    printf("{\"type\":\"error\"");
    print_string("step", step);
    print_number("errno", error);
    print_string("error", name ? name : "unknown");
    print_string("message", message);
    if (*words)
        print_string("log", words);
    else
        printf(",\"log\":null");
    end_line();
    exit(1);
}
