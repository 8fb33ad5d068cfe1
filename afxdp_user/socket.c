// SPDX-License-Identifier: Apache-2.0
#include "socket.h"
#include "fail.h"
#include "let_go.h"
#include "refusal.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef XDP_MAX_TX_SKB_BUDGET
#define XDP_MAX_TX_SKB_BUDGET 9 // Linux 6.17
#endif

// More than all frames in flight need: the socket's send buffer must never delay a frame.
#define SEND_BUFFER (FRAMES * 4096)

#define USE_SG (1 << 4) // Linux 6.6

#define UMEM_BYTES ((size_t)FRAMES * FRAME_BYTES)

static void create_umem(struct socket *socket) {
    const struct xsk_umem_config config = {
        .fill_size = FRAMES, .comp_size = FRAMES, .frame_size = FRAME_BYTES};
    int error = xsk_umem__create(&socket->umem, socket->frames, UMEM_BYTES, &socket->fill,
                                 &socket->completion, &config);
    if (error)
        fail("umem", -error, refusal_words(), "the frames cannot be registered: %s", strerror(-error));
}

static int bind_queue(struct socket *socket, const struct binding *binding) {
    const struct xsk_socket_config config = {
        .rx_size = FRAMES,
        .tx_size = FRAMES,
        .libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD,
        .bind_flags = (binding->zerocopy ? XDP_ZEROCOPY : XDP_COPY) | XDP_USE_NEED_WAKEUP |
                      (binding->frags ? USE_SG : 0),
    };
    return -xsk_socket__create(&socket->xsk, binding->interface, binding->queue, socket->umem, &socket->rx,
                               &socket->tx, &config);
}

static void bind_patiently(struct socket *socket, const struct binding *binding) {
    const uint64_t began = now_ns();
    int error;
    while ((error = bind_queue(socket, binding))) {
        if (error != EBUSY || nobody_commands() || !let_go_wait(began, LET_GO_QUEUE_NS))
            fail("bind", error, refusal_words(), "queue %u of %s does not bind with %s%s: %s", binding->queue,
                 binding->interface, binding->zerocopy ? "zerocopy" : "copy",
                 binding->frags ? " and several descriptors a frame (XDP_USE_SG, Linux 6.6)" : "",
                 strerror(error));
        xsk_umem__delete(socket->umem); // a umem of libxdp serves one try only
        create_umem(socket);
    }
    socket->fd = xsk_socket__fd(socket->xsk);
}

static void raise_limits(const struct socket *socket) {
    // Both only save system calls; if the kernel refuses, forwarding continues in smaller batches.
    const int buffer = SEND_BUFFER, budget = FRAMES;
    setsockopt(socket->fd, SOL_SOCKET, SO_SNDBUFFORCE, &buffer, sizeof(buffer));
    setsockopt(socket->fd, SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &budget, sizeof(budget));
}

static void read_back(struct socket *socket) {
    struct xdp_options options = {};
    socklen_t length = sizeof(options);
    if (getsockopt(socket->fd, SOL_XDP, XDP_OPTIONS, &options, &length))
        fail("bind", errno, refusal_words(), "the socket does not say how it was bound");
    socket->zerocopy = options.flags & XDP_OPTIONS_ZEROCOPY;
}

static void give_all_frames(struct socket *socket) {
    unsigned position;
    unsigned count = xsk_ring_prod__reserve(&socket->fill, FRAMES, &position);
    for (unsigned i = 0; i < count; i++)
        *xsk_ring_prod__fill_addr(&socket->fill, position + i) = (uint64_t)i * FRAME_BYTES;
    xsk_ring_prod__submit(&socket->fill, count);
}

void socket_open(struct socket *socket, const struct binding *binding) {
    socket->frames =
        mmap(NULL, UMEM_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (socket->frames == MAP_FAILED)
        fail("umem", errno, refusal_words(), "no memory for %zu bytes of frames", UMEM_BYTES);
    create_umem(socket);
    bind_patiently(socket, binding);
    raise_limits(socket);
    read_back(socket);
    give_all_frames(socket);
}

void socket_close(struct socket *socket) {
    xsk_socket__delete(socket->xsk);
    xsk_umem__delete(socket->umem);
    munmap(socket->frames, UMEM_BYTES);
}

int socket_error(const struct socket *socket) {
    int error = 0;
    socklen_t length = sizeof(error);
    return getsockopt(socket->fd, SOL_SOCKET, SO_ERROR, &error, &length) ? errno : error;
}

struct xdp_statistics socket_statistics(const struct socket *socket) {
    struct xdp_statistics statistics = {};
    socklen_t length = sizeof(statistics);
    if (getsockopt(socket->fd, SOL_XDP, XDP_STATISTICS, &statistics, &length))
        fail("stats", errno, NULL, "the socket does not give its statistics");
    return statistics;
}
