// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rings.h"
#include "tx_metadata.h"

#define XSK_CHUNKS 2048
#define XSK_FRAME_BYTES 2048 // of a chunk, where a frame fits

// How to open a socket, as asked for.
struct xsk_request {
    const char *interface;
    unsigned queue;
    unsigned frame_bytes; // of the largest frame
    bool zerocopy, need_wakeup;
    bool commanded;        // bursts come from stdin
    bool metadata;         // frames may ask something of the device
    unsigned busy_poll_us; // 0: none
};

// One sending AF_XDP socket, with memory of its own.
struct xsk {
    bool asked_only; // call the kernel only if it asks for it
    struct rings rings;
    uint8_t *area; // NULL: it is not open
    struct xsk_ring_prod tx, fill;
    struct xsk_ring_cons completion;
    unsigned metadata_room, chunk_bytes;
    unsigned chunks; // of a frame, side by side: a descriptor each
    unsigned frames;
    uint64_t free[XSK_CHUNKS]; // addresses of unused frames to send
    unsigned free_count;
    uint8_t parts[XSK_CHUNKS]; // by frame of several chunks: those that the kernel still has
    uint32_t next;             // place in the ring of the next descriptor of this batch
    uint32_t latest;           // and of the first one of the frame given last
    // With metadata: called for each frame that asked for something, once the kernel has done with it.
    void (*done)(void *whose, const struct tx_metadata *metadata, const uint8_t *frame);
    void *whose;
};

// Returns 0 or a negative errno after failed(): also if the socket is not what was asked for.
int xsk_open(struct xsk *xsk, const struct xsk_request *request);

// Whether the kernel says that it does not copy.
bool xsk_is_zerocopy(const struct xsk *xsk);

// Whether the socket knows a NAPI instance, without which busy polling polls nothing.
bool xsk_has_napi(const struct xsk *xsk);

// Starts a batch. Returns how many frames there is room for, at most `wanted`.
unsigned xsk_begin(struct xsk *xsk, unsigned wanted);

// A descriptor for each chunk that a frame reaches into.
__attribute__((cold)) void xsk_describe_parts(struct xsk *xsk, uint64_t address, unsigned bytes);

// The next frame of the batch, to be filled.
static inline uint8_t *xsk_frame(struct xsk *xsk, unsigned bytes) {
    const uint64_t address = xsk->free[--xsk->free_count];

    xsk->latest = xsk->next;
    if (xsk->chunks > 1)
        xsk_describe_parts(xsk, address, bytes);
    else
        *xsk_ring_prod__tx_desc(&xsk->tx, xsk->next++) = (struct xdp_desc){.addr = address, .len = bytes};
    return xsk->area + address;
}

// The metadata of the frame given last, which the kernel will read; empty.
struct tx_metadata *xsk_ask(struct xsk *xsk);

// Hands the batch to the kernel and lets it work.
void xsk_end(struct xsk *xsk);

// Frames the kernel has not finished with.
unsigned xsk_pending(const struct xsk *xsk);

void xsk_close(struct xsk *xsk);
