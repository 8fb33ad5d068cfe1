// SPDX-License-Identifier: Apache-2.0
// One AF_XDP socket on one queue, with frames of its own.
#pragma once

#include <linux/if_xdp.h>
#include <stdbool.h>
#include <stdint.h>
#include <xdp/xsk.h>

// Every ring has room for all frames, so no ring is ever full: a frame is lost only if the kernel drops and
// counts it.
#define FRAMES 2048
#define FRAME_BYTES XSK_UMEM__DEFAULT_FRAME_SIZE

struct socket {
    struct xsk_ring_prod fill;
    struct xsk_ring_cons completion;
    struct xsk_ring_cons rx;
    struct xsk_ring_prod tx;
    struct xsk_umem *umem;
    struct xsk_socket *xsk;
    void *frames;
    int fd;
    bool zerocopy; // as obtained
};

// How to bind it, as asked for.
struct binding {
    const char *interface;
    unsigned queue;
    bool zerocopy;
    bool frags; // a frame may have several descriptors, all but its last with CONTINUED
};

#define CONTINUED (1 << 0) // XDP_PKT_CONTD of Linux 6.6

void socket_open(struct socket *socket, const struct binding *binding);

// Frees the queue at once; the kernel would do it at the end of the process.
void socket_close(struct socket *socket);

// The errno that the kernel holds against the socket, such as ENETDOWN after its device has gone; or 0.
int socket_error(const struct socket *socket);

struct xdp_statistics socket_statistics(const struct socket *socket);
