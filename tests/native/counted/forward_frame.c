// SPDX-License-Identifier: Apache-2.0
// Frames that the AF_XDP application turns round and recycles, on rings in memory of this process: argv[1]
// batches.
#include "forward.c"

#include <stdlib.h>

#define BATCH 64

static unsigned long run(void *state, unsigned char *data, unsigned length) {
    (void)state, (void)data;
    return length;
}

// What the kernel does in between is one store per ring.
__attribute__((noinline)) void counted(struct socket *socket, struct queue *queue, unsigned batches) {
    for (unsigned i = 0; i < batches; i++) {
        *socket->rx.producer += BATCH;
        turn_round(queue);
        *socket->tx.consumer = *socket->tx.producer;
        *socket->completion.producer += BATCH;
        recycle(queue);
        *socket->fill.consumer = *socket->fill.producer;
    }
}

static struct xsk_ring_prod to_kernel(void *entries, unsigned *ends) {
    return (struct xsk_ring_prod){.cached_cons = FRAMES,
                                  .mask = FRAMES - 1,
                                  .size = FRAMES,
                                  .producer = &ends[0],
                                  .consumer = &ends[1],
                                  .ring = entries,
                                  .flags = &ends[2]};
}

static struct xsk_ring_cons from_kernel(void *entries, unsigned *ends) {
    return (struct xsk_ring_cons){.mask = FRAMES - 1,
                                  .size = FRAMES,
                                  .producer = &ends[0],
                                  .consumer = &ends[1],
                                  .ring = entries,
                                  .flags = &ends[2]};
}

int main(int count, char **arguments) {
    static struct queue queue = {.batch = BATCH};
    static struct xdp_desc received[FRAMES], sent[FRAMES];
    static __u64 filled[FRAMES], completed[FRAMES];
    static unsigned ends[4][3];
    const struct workload workload = {.run = run};
    const unsigned batches = count > 1 ? atoi(arguments[1]) : 0;

    queue.workload = &workload;
    queue.socket = (struct socket){.rx = from_kernel(received, ends[0]),
                                   .tx = to_kernel(sent, ends[1]),
                                   .completion = from_kernel(completed, ends[2]),
                                   .fill = to_kernel(filled, ends[3]),
                                   .frames = calloc(FRAMES, FRAME_BYTES)};
    counted(&queue.socket, &queue, batches);
    return queue.received != (uint64_t)batches * BATCH || queue.recycled != queue.received;
}
