// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a frame asks of the device that sends it, and what the device says of it afterwards: the kernel's
// interface since Linux 6.8, under names of our own, because Debian 12's headers do not have it.

#include <linux/types.h>

// Room before each frame. The kernel wants a multiple of 8; with a cache line, frames begin at one.
#define TX_METADATA_ROOM 64

// Of the memory: the room counts. Kernels before the flag take the room without it.
#define UMEM_TX_METADATA_LEN (1 << 2)

// Of a descriptor: this frame's metadata are to be read.
#define TX_METADATA_OPTION (1 << 1)

#define TX_METADATA_TIMESTAMP (1 << 0)
#define TX_METADATA_CHECKSUM (1 << 1)

struct tx_metadata {
    uint64_t flags;
    union {
        struct {
            uint16_t csum_start;
            uint16_t csum_offset;
            uint64_t launch_time;
        } request;
        struct {
            uint64_t tx_timestamp; // by the device's clock; it shares its place with the request
        } completion;
    };
};

struct umem_registration {
    uint64_t addr;
    uint64_t len;
    uint32_t chunk_size;
    uint32_t headroom;
    uint32_t flags;
    uint32_t tx_metadata_len;
};
