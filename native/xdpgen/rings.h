// SPDX-License-Identifier: Apache-2.0
#pragma once

// The kernel's side of a sending AF_XDP socket, by system calls: libxdp of Debian 12 registers memory without
// room for metadata. Its inline functions serve the rings.

#include <stddef.h>
#include <stdint.h>

#include <xdp/xsk.h>

struct ring_memory {
    void *at; // NULL: not mapped
    size_t bytes;
};

struct rings {
    int fd;
    struct ring_memory tx, fill, completion;
};

struct rings_request {
    void *area;
    size_t area_bytes;
    unsigned chunk_bytes, entries;
    unsigned metadata_room; // 0: none
};

// Opens the socket with its memory and its rings, not yet bound. Returns 0 or a negative errno; rings_close()
// is due after both.
int rings_open(struct rings *rings, const struct rings_request *request, struct xsk_ring_prod *tx,
               struct xsk_ring_prod *fill, struct xsk_ring_cons *completion);

int rings_bind(const struct rings *rings, unsigned ifindex, unsigned queue, uint16_t flags);

void rings_close(struct rings *rings);
