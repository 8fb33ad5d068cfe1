// SPDX-License-Identifier: Apache-2.0
// One queue: its frames are taken, the workload runs on them, and they are sent back. Queues of one CPU share
// a thread.
#pragma once

#include "options.h"
#include "payload.h"
#include "socket.h"
#include "workload.h"

#include <poll.h>
#include <pthread.h>

struct queue {
    struct socket socket;
    unsigned index;
    unsigned cpu;
    unsigned batch;
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
    uint64_t polls;    // poll() of its thread
    int error;         // the errno that ended its thread
    int error_event;   // eventfd, written to after `error`
};

// The thread of a CPU.
struct worker {
    unsigned cpu;
    bool busy;
    const bool *stopping; // true: forward what is in the rings, then end
    struct queue *queues[MAX_QUEUES];
    unsigned count;
    struct pollfd events[MAX_QUEUES + 1]; // of the queues' sockets, then of the stop event
    pthread_t thread;
};

struct queue_counts {
    uint64_t rx;
    uint64_t foreign; // frames of rx that are not test frames
    uint64_t tx;
    uint64_t tx_dropped;
    uint64_t tx_pending; // not yet sent; 0 at rest
};

// Opens the queue's socket; its frames wait in the ring until its worker is started.
void queue_open(struct queue *queue, const struct options *options, unsigned index);

void worker_add(struct worker *worker, struct queue *queue);

// Starts the thread, pinned to its CPU; it ends after `stop_event` is written to. `fifo` 0 requests no
// real-time priority. Returns 0, or the errno with which the priority was refused.
int worker_start(struct worker *worker, int stop_event, unsigned fifo);

// Waits for the end of the thread.
void worker_join(struct worker *worker);

// The errno that ended the queue's forwarding, or 0.
int queue_error(const struct queue *queue);

struct queue_counts queue_count(const struct queue *queue);
