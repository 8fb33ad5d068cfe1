// SPDX-License-Identifier: Apache-2.0
// One queue: the thread that takes its frames, runs the workload on them and sends them back.
#pragma once

#include "options.h"
#include "payload.h"
#include "socket.h"
#include "workload.h"

#include <pthread.h>

struct queue {
    struct socket socket;
    unsigned index;
    unsigned cpu;
    unsigned batch;
    bool busy;
    uint32_t magic;           // of the test frames, in network byte order
    struct frame_sizes sizes; // of the test frames; none: frames are not checked
    struct frame_layout layout;
    const struct workload *workload;
    void *state;
    bool frags;           // frames may have several descriptors
    unsigned char *whole; // where such a frame is put together for a workload that reads all of it
    unsigned long sum;    // of the workload's results, so that the compiler cannot remove the work

    // Written by the queue's thread only.
    uint64_t received;
    uint64_t lent;     // descriptors given to be sent
    uint64_t recycled; // sent and free again
    uint64_t foreign;  // received frames that are not test frames; sent back too
    uint64_t refused;  // taken by the kernel, then dropped by the driver
    uint64_t wakeups;  // sendto()
    uint64_t polls;    // poll()
    int error;         // the errno that ended the thread

    int error_event;      // eventfd, written to after `error`
    int stop_event;       // eventfd, the same for all queues; readable once `stopping` is true
    const bool *stopping; // true: forward what is in the ring, then end
    pthread_t thread;
};

struct queue_counts {
    uint64_t rx;
    uint64_t foreign; // frames of rx that are not test frames
    uint64_t tx;
    uint64_t tx_dropped;
    uint64_t tx_pending; // not yet sent; 0 at rest
};

// Opens the queue's socket; its frames wait in the ring until the thread is started.
void queue_open(struct queue *queue, const struct options *options, unsigned index);

// Starts the thread, pinned to the queue's CPU. `fifo` 0 requests no real-time priority. Returns 0, or the
// errno with which the priority was refused.
int queue_start(struct queue *queue, unsigned fifo);

// Waits for the end of the thread.
void queue_join(struct queue *queue);

// The errno that ended the queue's forwarding, or 0.
int queue_error(const struct queue *queue);

struct queue_counts queue_count(const struct queue *queue);
