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

// Linux 6.6: a frame may have several descriptors, all but its last with this option.
#define USE_SG (1 << 4)
#define CONTINUED (1 << 0)
#define LARGE_CHUNK_BYTES 4096 // the most the kernel takes: a page

#ifndef SO_BUSY_POLL_BUDGET
#define SO_BUSY_POLL_BUDGET 70 // Linux 5.11
#endif
#define POLL_BUDGET 64

// A driver without copies receives into this memory too: its queue gets as many frames for that. The
// receiving program drops them there, which gives them back.
static size_t umem_bytes(const struct xsk *xsk) { return (size_t)2 * XSK_CHUNKS * xsk->chunk_bytes; }

static unsigned room_before(const struct xsk_request *request) {
    return request->metadata ? TX_METADATA_ROOM : 0;
}

static void divide(struct xsk *xsk, const struct xsk_request *request) {
    const unsigned room = room_before(request), bytes = room + request->frame_bytes;

    xsk->metadata_room = room;
    xsk->chunk_bytes = bytes > XSK_FRAME_BYTES ? LARGE_CHUNK_BYTES : XSK_FRAME_BYTES;
    xsk->chunks = bytes > xsk->chunk_bytes ? (bytes + xsk->chunk_bytes - 1) / xsk->chunk_bytes : 1;
    xsk->frames = XSK_CHUNKS / xsk->chunks;
    for (xsk->free_count = 0; xsk->free_count < xsk->frames; xsk->free_count++)
        xsk->free[xsk->free_count] = (uint64_t)xsk->free_count * xsk->chunks * xsk->chunk_bytes + room;
}

static int make_umem(struct xsk *xsk, const struct xsk_request *request) {
    divide(xsk, request);
    xsk->rings.fd = -1;
    xsk->area = mmap(NULL, umem_bytes(xsk), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (xsk->area == MAP_FAILED) {
        xsk->area = NULL;
        return -errno;
    }
    return rings_open(&xsk->rings,
                      &(struct rings_request){
                          .area = xsk->area,
                          .area_bytes = umem_bytes(xsk),
                          .chunk_bytes = xsk->chunk_bytes,
                          .entries = XSK_CHUNKS,
                          .metadata_room = xsk->metadata_room,
                      },
                      &xsk->tx, &xsk->fill, &xsk->completion);
}

// Before the socket is bound: some drivers do not start a queue whose ring is empty.
static void fill_receive_ring(struct xsk *xsk) {
    uint32_t index;
    const unsigned count = xsk_ring_prod__reserve(&xsk->fill, XSK_CHUNKS, &index);

    for (unsigned i = 0; i < count; i++)
        *xsk_ring_prod__fill_addr(&xsk->fill, index + i) = (uint64_t)(XSK_CHUNKS + i) * xsk->chunk_bytes;
    xsk_ring_prod__submit(&xsk->fill, count);
}

static int try_open(struct xsk *xsk, const struct xsk_request *request) {
    int error = make_umem(xsk, request);
    const uint16_t flags = (request->zerocopy ? XDP_ZEROCOPY : XDP_COPY) |
                           (request->need_wakeup ? XDP_USE_NEED_WAKEUP : 0) | (xsk->chunks > 1 ? USE_SG : 0);

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

// try_open() leaves nothing of a socket that it did not get.
static int refuse(const struct xsk_request *request, int error) {
    const bool several = room_before(request) + request->frame_bytes > LARGE_CHUNK_BYTES;

    return failed("socket", error, NULL, "no AF_XDP socket with %s on queue %u of %s%s: %s",
                  request->zerocopy ? "zerocopy" : "copy", request->queue, request->interface,
                  several ? ", whose frames have several descriptors (XDP_USE_SG, Linux 6.6)" : "",
                  strerror(-error));
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
        return refuse(request, error);
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

// Whether the kernel has now done with all of a frame; its address is that of its first chunk.
static bool is_last_part(struct xsk *xsk, uint64_t *address) {
    const uint64_t frame_bytes = (uint64_t)xsk->chunks * xsk->chunk_bytes, frame = *address / frame_bytes;

    *address = frame * frame_bytes + xsk->metadata_room;
    return !--xsk->parts[frame];
}

static void reclaim(struct xsk *xsk) {
    uint32_t index;
    unsigned done = xsk_ring_cons__peek(&xsk->completion, XSK_CHUNKS, &index);

    for (unsigned i = 0; i < done; i++) {
        uint64_t address = *xsk_ring_cons__comp_addr(&xsk->completion, index + i);
        if (xsk->chunks > 1 && !is_last_part(xsk, &address))
            continue;
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
    return xsk_ring_prod__reserve(&xsk->tx, wanted * xsk->chunks, &xsk->next) / xsk->chunks;
}

void xsk_describe_parts(struct xsk *xsk, uint64_t address, unsigned bytes) {
    const uint64_t frame = address / ((uint64_t)xsk->chunks * xsk->chunk_bytes);
    unsigned room = xsk->chunk_bytes - xsk->metadata_room;

    for (xsk->parts[frame] = 0; bytes; room = xsk->chunk_bytes) {
        const unsigned part = bytes < room ? bytes : room;
        *xsk_ring_prod__tx_desc(&xsk->tx, xsk->next++) =
            (struct xdp_desc){.addr = address, .len = part, .options = part < bytes ? CONTINUED : 0};
        xsk->parts[frame]++;
        address += part;
        bytes -= part;
    }
}

struct tx_metadata *xsk_ask(struct xsk *xsk) {
    struct xdp_desc *descriptor = xsk_ring_prod__tx_desc(&xsk->tx, xsk->latest);
    struct tx_metadata *metadata = metadata_of(xsk, descriptor->addr);

    descriptor->options |= TX_METADATA_OPTION;
    *metadata = (struct tx_metadata){0}; // a stamp that the device does not write stays 0
    return metadata;
}

void xsk_end(struct xsk *xsk) {
    xsk->tx.cached_prod = xsk->next; // frames may have needed fewer descriptors than there was room for
    xsk_ring_prod__submit(&xsk->tx, xsk->next - *xsk->tx.producer);
    if (xsk->asked_only && !xsk_ring_prod__needs_wakeup(&xsk->tx))
        return;
    // EAGAIN, EBUSY and ENOBUFS mean that the rest waits for the next call.
    sendto(xsk->rings.fd, NULL, 0, MSG_DONTWAIT, NULL, 0);
}

unsigned xsk_pending(const struct xsk *xsk) { return xsk->frames - xsk->free_count; }

void xsk_close(struct xsk *xsk) {
    if (!xsk->area)
        return;
    rings_close(&xsk->rings);
    munmap(xsk->area, umem_bytes(xsk));
    *xsk = (struct xsk){0};
}
