// SPDX-License-Identifier: Apache-2.0
#include "forward.h"
#include "clock.h"
#include "fail.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>

#define RECYCLE_NS 1000000
#define RETRY_NS 50000
#define LOOK_NS 50000
#define MOST_LOOKS 40 // for a moment without a frame on its way
#define MOST_PARTS 18 // of a frame: the kernel has MAX_SKB_FRAGS (17) behind the first

static void add(uint64_t *counter, uint64_t count) {
    __atomic_store_n(counter, *counter + count, __ATOMIC_RELAXED); // one thread writes, others read
}

static uint64_t load(const uint64_t *counter) { return __atomic_load_n(counter, __ATOMIC_RELAXED); }

static unsigned unsent(const struct socket *socket) {
    return __atomic_load_n(socket->tx.producer, __ATOMIC_ACQUIRE) -
           __atomic_load_n(socket->tx.consumer, __ATOMIC_ACQUIRE);
}

static void give_up(struct queue *queue, int error) {
    __atomic_store_n(&queue->error, error, __ATOMIC_RELEASE);
    eventfd_write(queue->error_event, 1);
}

// Gives sent frames back to the fill ring, where they can receive again.
static void recycle(struct queue *queue) {
    struct socket *socket = &queue->socket;
    unsigned from, to = 0;
    unsigned count = xsk_ring_cons__peek(&socket->completion, FRAMES, &from);
    if (!count)
        return;
    xsk_ring_prod__reserve(&socket->fill, count, &to); // never fails: the ring has room for all frames
    for (unsigned i = 0; i < count; i++)
        *xsk_ring_prod__fill_addr(&socket->fill, to + i) =
            *xsk_ring_cons__comp_addr(&socket->completion, from + i);
    xsk_ring_prod__submit(&socket->fill, count);
    xsk_ring_cons__release(&socket->completion, count);
    queue->recycled += count;
}

// Returns whether headers, magic and run id are those of the generator's frames.
static inline bool has_marks(const struct queue *queue, const unsigned char *data, uint32_t bytes) {
    __u64 words[MOST_HEAD_WORDS];
    uint32_t magic;
    memcpy(words, data, sizeof(words)); // a zero-copy driver may put a frame at an odd address
    memcpy(&magic, data + frame_payload_at(&queue->layout), sizeof(magic));
    return magic == queue->magic && frame_has_shape(words, bytes, &queue->layout);
}

// Of test frames of several sizes.
static __attribute__((cold, noinline)) bool is_smaller_test_frame(const struct queue *queue,
                                                                  const unsigned char *data, uint32_t bytes) {
    for (unsigned i = 0; i < queue->sizes.count; i++)
        if (queue->sizes.bytes[i] == bytes)
            return has_marks(queue, data, bytes);
    return false;
}

// Returns whether the generator sent the frame: checks length, headers, magic and run id.
static bool is_test_frame(const struct queue *queue, const unsigned char *data, uint32_t bytes) {
    if (bytes != queue->sizes.largest)
        return is_smaller_test_frame(queue, data, bytes);
    return has_marks(queue, data, bytes);
}

static unsigned char *data_of(const struct queue *queue, const struct xdp_desc *part) {
    return xsk_umem__get_data(queue->socket.frames, part->addr);
}

static const struct xdp_desc *part_at(struct queue *queue, unsigned at) {
    return xsk_ring_cons__rx_desc(&queue->socket.rx, at);
}

static inline __attribute__((always_inline)) void work(struct queue *queue, unsigned char *data,
                                                       uint32_t bytes) {
    if (queue->sizes.largest && !is_test_frame(queue, data, bytes))
        add(&queue->foreign, 1);
    queue->sum += queue->workload->run(queue->state, data, bytes);
}

// Copies a frame's parts together, or the frame back into its parts.
static void gather(struct queue *queue, unsigned from, unsigned parts, bool back) {
    unsigned char *whole = queue->whole;
    for (unsigned i = 0; i < parts; i++) {
        const struct xdp_desc *part = part_at(queue, from + i);
        memcpy(back ? data_of(queue, part) : whole, back ? whole : data_of(queue, part), part->len);
        whole += part->len;
    }
}

// Works on frames that may have several descriptors, and returns their number.
static __attribute__((cold, noinline)) unsigned work_on_all(struct queue *queue, unsigned from,
                                                            unsigned count) {
    const unsigned end = from + count;
    unsigned frames = 0;
    for (unsigned parts; from < end; from += parts, frames++) {
        uint32_t bytes = part_at(queue, from)->len;
        for (parts = 1; part_at(queue, from + parts - 1)->options & CONTINUED; parts++)
            bytes += part_at(queue, from + parts)->len;
        const bool copied = parts > 1 && queue->workload->reads_frame;
        if (copied)
            gather(queue, from, parts, false);
        work(queue, copied ? queue->whole : data_of(queue, part_at(queue, from)), bytes);
        if (copied)
            gather(queue, from, parts, true);
    }
    return frames;
}

// Takes descriptors of whole frames: one whose end is not among them waits for the next turn. Returns their
// number.
static unsigned take(struct queue *queue, unsigned *from) {
    struct xsk_ring_cons *rx = &queue->socket.rx;
    const unsigned most = queue->batch + (queue->frags ? MOST_PARTS : 0);
    unsigned count = xsk_ring_cons__peek(rx, most, from), kept = count;
    while (kept && part_at(queue, *from + kept - 1)->options & CONTINUED)
        kept--;
    rx->cached_cons -= count - kept;
    return kept;
}

// Takes up to a batch of frames, runs the workload on them in place, and queues them for sending. Returns
// the number of their descriptors.
static unsigned turn_round(struct queue *queue) {
    struct socket *socket = &queue->socket;
    unsigned from, to = 0;
    unsigned count = take(queue, &from), frames = count;
    if (!count)
        return 0;
    xsk_ring_prod__reserve(&socket->tx, count, &to); // never fails: the ring has room for all frames
    if (queue->frags) {
        frames = work_on_all(queue, from, count);
        for (unsigned i = 0; i < count; i++)
            *xsk_ring_prod__tx_desc(&socket->tx, to + i) = *part_at(queue, from + i);
    } else {
        for (unsigned i = 0; i < count; i++) {
            const struct xdp_desc *frame = part_at(queue, from + i);
            work(queue, data_of(queue, frame), frame->len);
            *xsk_ring_prod__tx_desc(&socket->tx, to + i) =
                (struct xdp_desc){.addr = frame->addr, .len = frame->len};
        }
    }
    queue->lent += count;
    add(&queue->received, frames); // before they can be sent: no reader sees more sent than received
    xsk_ring_prod__submit(&socket->tx, count);
    xsk_ring_cons__release(&socket->rx, count);
    return count;
}

static void note_send_error(struct queue *queue, int error) {
    switch (error) {
    case EBUSY: // copy mode: the kernel stopped at a frame that the driver dropped
        if (!queue->socket.zerocopy)
            add(&queue->refused, 1);
        break;
    case EAGAIN:
    case ENOBUFS:
    case EINTR:
        break;
    default:
        give_up(queue, error);
    }
}

// Makes the kernel send. In copy mode each call sends a part of the ring before it returns.
static void kick(struct queue *queue) {
    struct socket *socket = &queue->socket;
    if (socket->zerocopy && !xsk_ring_prod__needs_wakeup(&socket->tx))
        return;
    for (unsigned left = unsent(socket), before = left + 1; left && left < before && !queue->error;) {
        add(&queue->wakeups, 1);
        if (sendto(socket->fd, NULL, 0, MSG_DONTWAIT, NULL, 0) < 0)
            note_send_error(queue, errno);
        before = left;
        left = unsent(socket);
    }
}

static unsigned turn(struct queue *queue) {
    unsigned count = turn_round(queue);
    kick(queue);
    recycle(queue);
    return count;
}

static unsigned turn_all(struct worker *worker) {
    unsigned count = 0;
    for (unsigned i = 0; i < worker->count; i++)
        count += turn(worker->queues[i]);
    return count;
}

static void ask_for_frames(struct worker *worker) {
    for (unsigned i = 0; i < worker->count; i++) {
        struct socket *socket = &worker->queues[i]->socket;
        if (xsk_ring_prod__needs_wakeup(&socket->fill))
            recvfrom(socket->fd, NULL, 0, MSG_DONTWAIT, NULL, NULL);
    }
}

// Waits for a frame or the stop event; for a short time while sent frames are not yet recycled. A queue whose
// frames the kernel could not send waits for its next try: their receiver may need this CPU.
static void wait_for_frames(struct worker *worker) {
    bool recycled = true, blocked = false;
    for (unsigned i = 0; i < worker->count; i++) {
        struct queue *queue = worker->queues[i];
        bool waits = unsent(&queue->socket);
        worker->events[i].fd = waits ? -1 : queue->socket.fd;
        blocked |= waits;
        recycled &= queue->recycled == queue->lent;
    }
    if (worker->busy && !blocked) {
        ask_for_frames(worker);
        return;
    }
    const struct timespec timeout = {.tv_nsec = blocked ? RETRY_NS : RECYCLE_NS};
    for (unsigned i = 0; i < worker->count; i++)
        add(&worker->queues[i]->polls, 1);
    ppoll(worker->events, worker->count + 1, recycled && !blocked ? NULL : &timeout, NULL);
}

static bool has_error(const struct worker *worker) {
    for (unsigned i = 0; i < worker->count; i++)
        if (worker->queues[i]->error)
            return true;
    return false;
}

static void *forward(void *argument) {
    struct worker *worker = argument;
    bool stopping = false;
    while (!has_error(worker)) {
        unsigned count = turn_all(worker);
        if (!count && stopping)
            break;
        stopping = __atomic_load_n(worker->stopping, __ATOMIC_ACQUIRE);
        if (!count && !stopping)
            wait_for_frames(worker);
    }
    return NULL;
}

void queue_open(struct queue *queue, const struct options *options, unsigned index) {
    queue->index = index;
    queue->cpu = options->cpus.cpus[index % options->cpus.count];
    queue->batch = options->batch;
    queue->magic = htonl(PAYLOAD_MAGIC ^ options->run_id);
    queue->sizes = options->sizes;
    queue->layout = frame_layout(options->vlan, options->ip_version);
    queue->state = workload_state(queue->workload, index);
    queue->frags = options->frags;
    queue->whole = malloc(MOST_PARTS * FRAME_BYTES);
    if (!queue->whole)
        fail("workload", ENOMEM, NULL, "no memory for a whole frame");
    socket_open(&queue->socket, &(struct binding){.interface = options->interface,
                                                  .queue = index,
                                                  .zerocopy = options->zerocopy,
                                                  .frags = options->frags});
}

void worker_add(struct worker *worker, struct queue *queue) {
    worker->events[worker->count] = (struct pollfd){.events = POLLIN};
    worker->queues[worker->count++] = queue;
}

int worker_start(struct worker *worker, int stop_event, unsigned fifo) {
    const struct sched_param priority = {.sched_priority = fifo};
    const unsigned first = worker->queues[0]->index;
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(worker->cpu, &cpus);
    worker->events[worker->count] = (struct pollfd){.fd = stop_event, .events = POLLIN};
    int error = pthread_create(&worker->thread, NULL, forward, worker);
    if (error)
        fail("thread", error, NULL, "cannot start the thread of queue %u", first);
    error = pthread_setaffinity_np(worker->thread, sizeof(cpus), &cpus);
    if (error)
        fail("cpus", error, NULL, "the thread of queue %u cannot run on CPU %u", first, worker->cpu);
    return fifo ? pthread_setschedparam(worker->thread, SCHED_FIFO, &priority) : 0;
}

void worker_join(struct worker *worker) { pthread_join(worker->thread, NULL); }

int queue_error(const struct queue *queue) {
    int error = __atomic_load_n(&queue->error, __ATOMIC_ACQUIRE);
    return error ? error : socket_error(&queue->socket);
}

static struct queue_counts read_counts(const struct queue *queue) {
    uint64_t pending = unsent(&queue->socket); // in descriptors: a frame may have several
    uint64_t foreign = load(&queue->foreign);  // before `received`, of which it is a part
    uint64_t received = load(&queue->received);
    pending = pending < received ? pending : received;
    uint64_t dropped = load(&queue->refused) + socket_statistics(&queue->socket).tx_invalid_descs;
    return (struct queue_counts){.rx = received,
                                 .foreign = foreign,
                                 .tx = received - pending - dropped,
                                 .tx_dropped = dropped,
                                 .tx_pending = pending};
}

// How many descriptors the kernel has handed over.
static uint32_t handed_over(const struct socket *socket) {
    return __atomic_load_n(socket->rx.producer, __ATOMIC_ACQUIRE);
}

// A frame of others may come at any time: while one is on its way, some counters have it and some do not. If
// one is at every look, the last look counts.
struct queue_counts queue_count(const struct queue *queue) {
    const struct socket *socket = &queue->socket;
    struct queue_counts counts;
    for (unsigned look = 0; look < MOST_LOOKS; look++) {
        const uint32_t before = handed_over(socket);
        const bool all_done = __atomic_load_n(socket->rx.consumer, __ATOMIC_ACQUIRE) == before;
        counts = read_counts(queue);
        if (all_done && !counts.tx_pending && handed_over(socket) == before)
            break;
        sleep_until_ns(now_ns() + LOOK_NS);
    }
    return counts;
}
