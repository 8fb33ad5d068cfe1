/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include <xdp/xsk.h>

#define XSK_FRAMES 2048
#define XSK_FRAME_BYTES 2048

/* One sending AF_XDP socket in copy mode, with memory of its own. */
struct xsk {
    struct xsk_socket *socket;
    struct xsk_umem *umem;
    uint8_t *area;
    struct xsk_ring_prod tx, fill;
    struct xsk_ring_cons completion;
    uint64_t free[XSK_FRAMES]; /* addresses of unused frames */
    unsigned free_count;
    uint32_t next; /* place in the ring of the next frame of this batch */
};

int xsk_open(struct xsk *xsk, const char *interface, unsigned queue);

/* Starts a batch. Returns how many frames there is room for, at most `wanted`;
 * exactly so many must follow.
 */
unsigned xsk_begin(struct xsk *xsk, unsigned wanted);

/* The next frame of the batch, to be filled. */
uint8_t *xsk_frame(struct xsk *xsk, unsigned bytes);

/* Hands the batch to the kernel and lets it work. */
void xsk_end(struct xsk *xsk, unsigned frames);

/* Frames the kernel has not finished with. */
unsigned xsk_pending(const struct xsk *xsk);

void xsk_close(struct xsk *xsk);
