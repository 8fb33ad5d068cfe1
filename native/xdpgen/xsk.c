// SPDX-License-Identifier: Apache-2.0
#include "xsk.h"
#include "fail.h"
#include "let_go.h"
#include "session.h"

#include <errno.h>
#include <linux/if_xdp.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#ifndef XDP_MAX_TX_SKB_BUDGET
#define XDP_MAX_TX_SKB_BUDGET                                                                                \
    9 /* frames a sendto() may send: 32 unless set; the option is newer than                                 \
         Debian 12's headers */
#endif
#define SKB_BUDGET 256

static int make_umem(struct xsk *xsk) {
    const struct xsk_umem_config config = {
        .fill_size = XSK_RING_PROD__DEFAULT_NUM_DESCS,
        .comp_size = XSK_FRAMES,
        .frame_size = XSK_FRAME_BYTES,
    };
    const size_t bytes = XSK_FRAMES * XSK_FRAME_BYTES;

    xsk->area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (xsk->area == MAP_FAILED) {
        xsk->area = NULL;
        return -errno;
    }
    for (xsk->free_count = 0; xsk->free_count < XSK_FRAMES; xsk->free_count++)
        xsk->free[xsk->free_count] = xsk->free_count * XSK_FRAME_BYTES;
    return xsk_umem__create(&xsk->umem, xsk->area, bytes, &xsk->fill, &xsk->completion, &config);
}

static int try_open(struct xsk *xsk, const char *interface, unsigned queue) {
    const struct xsk_socket_config config = {
        .tx_size = XSK_FRAMES,
        .libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD,
        .bind_flags = XDP_COPY,
    };
    int error = make_umem(xsk);

    if (!error)
        error = xsk_socket__create(&xsk->socket, interface, queue, xsk->umem, NULL, &xsk->tx, &config);
    if (error)
        xsk_close(xsk);
    return error;
}

static int open_when_free(struct xsk *xsk, const char *interface, unsigned queue) {
    const uint64_t began = now_ns();
    int error;

    while ((error = try_open(xsk, interface, queue)) == -EBUSY && !interrupted &&
           let_go_wait(began, LET_GO_QUEUE_NS))
        ;
    return error;
}

int xsk_open(struct xsk *xsk, const char *interface, unsigned queue) {
    const int budget = SKB_BUDGET;
    int error = open_when_free(xsk, interface, queue);

    if (error)
        return failed("socket", error, NULL, "no AF_XDP socket on queue %u of %s: %s", queue, interface,
                      strerror(-error));
    /* Older kernels lack it, and send 32 frames per call. */
    setsockopt(xsk_socket__fd(xsk->socket), SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &budget, sizeof(budget));
    return 0;
}

static void reclaim(struct xsk *xsk) {
    uint32_t index;
    unsigned done = xsk_ring_cons__peek(&xsk->completion, XSK_FRAMES, &index);

    for (unsigned i = 0; i < done; i++)
        xsk->free[xsk->free_count++] = *xsk_ring_cons__comp_addr(&xsk->completion, index + i);
    xsk_ring_cons__release(&xsk->completion, done);
}

unsigned xsk_begin(struct xsk *xsk, unsigned wanted) {
    reclaim(xsk);
    if (wanted > xsk->free_count)
        wanted = xsk->free_count;
    return xsk_ring_prod__reserve(&xsk->tx, wanted, &xsk->next);
}

uint8_t *xsk_frame(struct xsk *xsk, unsigned bytes) {
    struct xdp_desc *descriptor = xsk_ring_prod__tx_desc(&xsk->tx, xsk->next++);

    *descriptor = (struct xdp_desc){.addr = xsk->free[--xsk->free_count], .len = bytes};
    return xsk->area + descriptor->addr;
}

void xsk_end(struct xsk *xsk, unsigned frames) {
    xsk_ring_prod__submit(&xsk->tx, frames);
    /* EAGAIN, EBUSY and ENOBUFS mean that the rest waits for the next call. */
    sendto(xsk_socket__fd(xsk->socket), NULL, 0, MSG_DONTWAIT, NULL, 0);
}

unsigned xsk_pending(const struct xsk *xsk) { return XSK_FRAMES - xsk->free_count; }

void xsk_close(struct xsk *xsk) {
    if (xsk->socket)
        xsk_socket__delete(xsk->socket);
    if (xsk->umem)
        xsk_umem__delete(xsk->umem);
    if (xsk->area)
        munmap(xsk->area, XSK_FRAMES * XSK_FRAME_BYTES);
    *xsk = (struct xsk){0};
}
