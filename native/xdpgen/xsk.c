// SPDX-License-Identifier: Apache-2.0
#include "xsk.h"
#include "fail.h"
#include "let_go.h"
#include "thread.h"

#include <errno.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#ifndef XDP_MAX_TX_SKB_BUDGET
// Frames that a sendto() may send: 32 unless set; the option is newer than Debian 12's headers
#define XDP_MAX_TX_SKB_BUDGET 9
#endif
#define SKB_BUDGET 256

#ifndef SO_BUSY_POLL_BUDGET
#define SO_BUSY_POLL_BUDGET 70 // Linux 5.11
#endif
#define POLL_BUDGET 64

// A driver without copies receives into this memory too: its queue gets as many frames for that. The
// receiving program drops them there, which gives them back.
#define UMEM_BYTES ((size_t)2 * XSK_FRAMES * XSK_FRAME_BYTES)

static int make_umem(struct xsk *xsk, unsigned metadata_room) {
    xsk->rings.fd = -1;
    xsk->area = mmap(NULL, UMEM_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (xsk->area == MAP_FAILED) {
        xsk->area = NULL;
        return -errno;
    }
    for (xsk->free_count = 0; xsk->free_count < XSK_FRAMES; xsk->free_count++)
        xsk->free[xsk->free_count] = xsk->free_count * XSK_FRAME_BYTES + metadata_room;
    return rings_open(&xsk->rings,
                      &(struct rings_request){
                          .area = xsk->area,
                          .area_bytes = UMEM_BYTES,
                          .chunk_bytes = XSK_FRAME_BYTES,
                          .entries = XSK_FRAMES,
                          .metadata_room = metadata_room,
                      },
                      &xsk->tx, &xsk->fill, &xsk->completion);
}

// Before the socket is bound: some drivers do not start a queue whose ring is empty.
static void fill_receive_ring(struct xsk *xsk) {
    uint32_t index;
    const unsigned count = xsk_ring_prod__reserve(&xsk->fill, XSK_FRAMES, &index);

    for (unsigned i = 0; i < count; i++)
        *xsk_ring_prod__fill_addr(&xsk->fill, index + i) = (uint64_t)(XSK_FRAMES + i) * XSK_FRAME_BYTES;
    xsk_ring_prod__submit(&xsk->fill, count);
}

static int try_open(struct xsk *xsk, const struct xsk_request *request) {
    const uint16_t flags =
        (request->zerocopy ? XDP_ZEROCOPY : XDP_COPY) | (request->need_wakeup ? XDP_USE_NEED_WAKEUP : 0);
    int error = make_umem(xsk, request->metadata ? TX_METADATA_ROOM : 0);

    if (!error && request->zerocopy)
        fill_receive_ring(xsk);
    if (!error)
        error = rings_bind(&xsk->rings, if_nametoindex(request->interface), request->queue, flags);
    if (error)
        xsk_close(xsk);
    return error;
}

static int open_when_free(struct xsk *xsk, const struct xsk_request *request) {
    const uint64_t began = now_ns();
    int error;

    while ((error = try_open(xsk, request)) == -EBUSY && !interrupted &&
           !(request->commanded && nobody_commands()) && let_go_wait(began, LET_GO_QUEUE_NS))
        ;
    return error;
}

bool xsk_is_zerocopy(const struct xsk *xsk) {
    struct xdp_options options = {0};
    socklen_t length = sizeof(options);

    return !getsockopt(xsk->rings.fd, SOL_XDP, XDP_OPTIONS, &options, &length) &&
           options.flags & XDP_OPTIONS_ZEROCOPY;
}

bool xsk_has_napi(const struct xsk *xsk) {
    unsigned napi = 0;
    socklen_t length = sizeof(napi);

    return !getsockopt(xsk->rings.fd, SOL_SOCKET, SO_INCOMING_NAPI_ID, &napi, &length) && napi;
}

// SO_PREFER_BUSY_POLL would also leave out the driver's wake-up (xsk_no_wakeup): where a card's transmit
// queue has a NAPI instance of its own, as igb's with one queue, nothing would be sent.
static int poll_busily(const struct xsk *xsk, unsigned microseconds) {
    const struct {
        int option, value;
    } options[] = {{SO_BUSY_POLL, microseconds}, {SO_BUSY_POLL_BUDGET, POLL_BUDGET}};

    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
        if (setsockopt(xsk->rings.fd, SOL_SOCKET, options[i].option, &options[i].value, sizeof(int)))
            return failed("socket", errno, NULL, "the kernel refuses busy polling: %s", strerror(errno));
    return 0;
}

int xsk_open(struct xsk *xsk, const struct xsk_request *request) {
    const int budget = SKB_BUDGET;
    int error = open_when_free(xsk, request);

    if (error)
        return failed("socket", error, NULL, "no AF_XDP socket with %s on queue %u of %s: %s",
                      request->zerocopy ? "zerocopy" : "copy", request->queue, request->interface,
                      strerror(-error));
    // Where the calls are what polls the queue, without them nothing is sent, whether the kernel asks or not.
    xsk->asked_only = request->need_wakeup && !request->busy_poll_us;
    if (xsk_is_zerocopy(xsk) != request->zerocopy)
        return failed("socket", EOPNOTSUPP, NULL, "queue %u of %s is bound with %s instead of %s",
                      request->queue, request->interface, request->zerocopy ? "copy" : "zerocopy",
                      request->zerocopy ? "zerocopy" : "copy");
    // Older kernels lack it, and send 32 frames per call.
    setsockopt(xsk->rings.fd, SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &budget, sizeof(budget));
    return request->busy_poll_us ? poll_busily(xsk, request->busy_poll_us) : 0;
}

static struct tx_metadata *metadata_of(const struct xsk *xsk, uint64_t address) {
    return (struct tx_metadata *)(xsk->area + address - TX_METADATA_ROOM);
}

static void tell(struct xsk *xsk, uint64_t address) {
    struct tx_metadata *metadata = metadata_of(xsk, address);

    if (metadata->flags)
        xsk->done(xsk->whose, metadata, xsk->area + address);
    metadata->flags = 0;
}

static void reclaim(struct xsk *xsk) {
    uint32_t index;
    unsigned done = xsk_ring_cons__peek(&xsk->completion, XSK_FRAMES, &index);

    for (unsigned i = 0; i < done; i++) {
        const uint64_t address = *xsk_ring_cons__comp_addr(&xsk->completion, index + i);
        if (xsk->done)
            tell(xsk, address);
        xsk->free[xsk->free_count++] = address;
    }
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

struct tx_metadata *xsk_ask(struct xsk *xsk) {
    struct xdp_desc *descriptor = xsk_ring_prod__tx_desc(&xsk->tx, xsk->next - 1);
    struct tx_metadata *metadata = metadata_of(xsk, descriptor->addr);

    descriptor->options = TX_METADATA_OPTION;
    *metadata = (struct tx_metadata){0}; // a stamp that the device does not write stays 0
    return metadata;
}

void xsk_end(struct xsk *xsk, unsigned frames) {
    xsk_ring_prod__submit(&xsk->tx, frames);
    if (xsk->asked_only && !xsk_ring_prod__needs_wakeup(&xsk->tx))
        return;
    // EAGAIN, EBUSY and ENOBUFS mean that the rest waits for the next call.
    sendto(xsk->rings.fd, NULL, 0, MSG_DONTWAIT, NULL, 0);
}

unsigned xsk_pending(const struct xsk *xsk) { return XSK_FRAMES - xsk->free_count; }

void xsk_close(struct xsk *xsk) {
    if (!xsk->area)
        return;
    rings_close(&xsk->rings);
    munmap(xsk->area, UMEM_BYTES);
    *xsk = (struct xsk){0};
}
