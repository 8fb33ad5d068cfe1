// SPDX-License-Identifier: Apache-2.0
#include "rings.h"
#include "tx_metadata.h"

#include <errno.h>
#include <linux/if_xdp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static int option(int fd, int name, const void *value, size_t size) {
    return setsockopt(fd, SOL_XDP, name, value, size) ? -errno : 0;
}

static int register_memory(int fd, const struct rings_request *request) {
    struct umem_registration memory = {
        .addr = (uint64_t)(uintptr_t)request->area,
        .len = request->area_bytes,
        .chunk_size = request->chunk_bytes,
        .flags = request->metadata_room ? UMEM_TX_METADATA_LEN : 0,
        .tx_metadata_len = request->metadata_room,
    };
    int error = option(fd, XDP_UMEM_REG, &memory, sizeof(memory));

    if (error != -EINVAL || !request->metadata_room)
        return error;
    memory.flags = 0; // Linux 6.8 to 6.10
    return option(fd, XDP_UMEM_REG, &memory, sizeof(memory));
}

static int map(int fd, struct ring_memory *memory, size_t bytes, off_t at) {
    memory->at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, at);
    if (memory->at == MAP_FAILED) {
        memory->at = NULL;
        return -errno;
    }
    memory->bytes = bytes;
    return 0;
}

static void *place(const struct ring_memory *memory, uint64_t offset) { return (char *)memory->at + offset; }

static void use_to_produce(struct xsk_ring_prod *ring, const struct ring_memory *memory,
                           const struct xdp_ring_offset *at, unsigned entries) {
    *ring = (struct xsk_ring_prod){
        .cached_cons = entries,
        .mask = entries - 1,
        .size = entries,
        .producer = place(memory, at->producer),
        .consumer = place(memory, at->consumer),
        .ring = place(memory, at->desc),
        .flags = place(memory, at->flags),
    };
}

static void use_to_consume(struct xsk_ring_cons *ring, const struct ring_memory *memory,
                           const struct xdp_ring_offset *at, unsigned entries) {
    *ring = (struct xsk_ring_cons){
        .mask = entries - 1,
        .size = entries,
        .producer = place(memory, at->producer),
        .consumer = place(memory, at->consumer),
        .ring = place(memory, at->desc),
        .flags = place(memory, at->flags),
    };
}

static int map_rings(struct rings *rings, const struct xdp_mmap_offsets *at, unsigned entries) {
    return map(rings->fd, &rings->tx, at->tx.desc + entries * sizeof(struct xdp_desc), XDP_PGOFF_TX_RING)
               ?: map(rings->fd, &rings->fill, at->fr.desc + entries * sizeof(uint64_t),
                      XDP_UMEM_PGOFF_FILL_RING)
               ?: map(rings->fd, &rings->completion, at->cr.desc + entries * sizeof(uint64_t),
                      XDP_UMEM_PGOFF_COMPLETION_RING);
}

int rings_open(struct rings *rings, const struct rings_request *request, struct xsk_ring_prod *tx,
               struct xsk_ring_prod *fill, struct xsk_ring_cons *completion) {
    const uint32_t entries = request->entries;
    struct xdp_mmap_offsets at;
    socklen_t length = sizeof(at);

    *rings = (struct rings){.fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0)};
    if (rings->fd < 0)
        return -errno;
    int error = register_memory(rings->fd, request)
                    ?: option(rings->fd, XDP_UMEM_FILL_RING, &entries, sizeof(entries))
                    ?: option(rings->fd, XDP_UMEM_COMPLETION_RING, &entries, sizeof(entries))
                    ?: option(rings->fd, XDP_TX_RING, &entries, sizeof(entries));
    if (!error && getsockopt(rings->fd, SOL_XDP, XDP_MMAP_OFFSETS, &at, &length))
        error = -errno;
    error = error ?: map_rings(rings, &at, entries);
    if (error)
        return error;
    use_to_produce(tx, &rings->tx, &at.tx, entries);
    use_to_produce(fill, &rings->fill, &at.fr, entries);
    use_to_consume(completion, &rings->completion, &at.cr, entries);
    return 0;
}

int rings_bind(const struct rings *rings, unsigned ifindex, unsigned queue, uint16_t flags) {
    const struct sockaddr_xdp address = {
        .sxdp_family = AF_XDP,
        .sxdp_flags = flags,
        .sxdp_ifindex = ifindex,
        .sxdp_queue_id = queue,
    };

    return bind(rings->fd, (const struct sockaddr *)&address, sizeof(address)) ? -errno : 0;
}

static void unmap(struct ring_memory *memory) {
    if (memory->at)
        munmap(memory->at, memory->bytes);
}

void rings_close(struct rings *rings) {
    unmap(&rings->tx);
    unmap(&rings->fill);
    unmap(&rings->completion);
    if (rings->fd >= 0)
        close(rings->fd);
    *rings = (struct rings){.fd = -1};
}
