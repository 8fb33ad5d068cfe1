// SPDX-License-Identifier: Apache-2.0
// Frames that xdpgen's AF_XDP engine makes, into memory of this process: argv[1] of them, one in argv[2]
// stamped.
#include "afxdp_queue.c"

#include "frame.h"
#include "session.h"

#include <stdlib.h>

__attribute__((noinline)) void counted(struct queue *queue, unsigned frames) {
    for (unsigned i = 0; i < frames; i++, queue->sequence++) {
        queue->xsk.free_count = XSK_CHUNKS;
        fill_test_frame(queue, 0);
    }
}

int main(int count, char **arguments) {
    static struct session session;
    static struct queue queue;
    static struct xdp_desc ring[XSK_CHUNKS];
    char *none[] = {"xdpgen", "--interface", "lo", "--stamp", arguments[2], NULL};

    (void)count;
    options_parse(&session.options, 5, none);
    session.streams = 1;
    session_set_flows(&session);
    queue.flow.count = session.flows.count;
    afxdp.session = &session;
    afxdp_make_ready(&queue);
    draw_begin(&queue.stamped, 1, 0, session.options.stamp_every);
    queue.xsk.chunks = 1;
    queue.xsk.chunk_bytes = XSK_FRAME_BYTES;
    queue.xsk.frames = XSK_CHUNKS;
    queue.xsk.area = calloc(XSK_CHUNKS, XSK_FRAME_BYTES);
    queue.xsk.tx = (struct xsk_ring_prod){.mask = XSK_CHUNKS - 1, .size = XSK_CHUNKS, .ring = ring};
    counted(&queue, atoi(arguments[1]));
    return 0;
}
