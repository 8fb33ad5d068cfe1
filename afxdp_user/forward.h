// SPDX-License-Identifier: Apache-2.0
// One queue: the thread that takes its frames, runs the workload on them and sends them back.
#pragma once

#include "options.h"
#include "socket.h"
#include "workload.h"

#include <pthread.h>

struct queue {
    struct socket socket;
    unsigned int index;
    unsigned int cpu;
    unsigned int batch;
    bool busy;
    uint32_t magic;       // of the test frames, in network byte order
    uint32_t frame_bytes; // of each of them, without FCS; 0: frames are not looked at
    const struct workload *workload;
    void *state;
    unsigned long sum; // of the workload's results: nothing of it can be optimised away

    // Written by the queue's thread only.
    uint64_t received;
    uint64_t recycled; // sent and free again
    uint64_t foreign;  // of the received ones: no test frames, sent back all the same
    uint64_t refused;  // consumed by the kernel, and dropped by the driver
    uint64_t wakeups;  // sendto()
    uint64_t polls;    // poll()
    int error;         // the errno that ended the thread

    int error_event;      // eventfd, written to after `error`
    int stop_event;       // eventfd, readable once `stopping` is true: the same for all queues
    const bool *stopping; // forward what is in the ring, then end
    pthread_t thread;
};

struct queue_counts {
    uint64_t rx;
    uint64_t foreign; // those of rx that are no test frames
    uint64_t tx;
    uint64_t tx_dropped;
    uint64_t tx_pending; // on their way; 0 at rest
};

// Opens the queue's socket; its frames wait in the ring until it is started.
void queue_open(struct queue *queue, const struct options *options, unsigned int index);

// Starts the thread, pinned to the queue's CPU. `fifo` 0 asks for no real-time priority; returns 0 or why it
// was refused (errno).
int queue_start(struct queue *queue, unsigned int fifo);

// Waits for the end of the thread.
void queue_join(struct queue *queue);

// The errno that ended the queue's forwarding, or 0.
int queue_error(const struct queue *queue);

struct queue_counts queue_count(const struct queue *queue);
