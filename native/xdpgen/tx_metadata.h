/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a frame asks of the device that sends it, and what the device says of it afterwards: the kernel's
 * interface since Linux 6.8, under names of our own, because Debian 12's headers do not have it. */

#include <linux/types.h>

/* Room before each frame. The kernel wants a multiple of 8; with a cache line, frames begin at one. */
#define TX_METADATA_ROOM 64

/* Of the memory: the room counts. Kernels before the flag take the room without it. */
#define UMEM_TX_METADATA_LEN (1 << 2)

/* Of a descriptor: this frame's metadata are to be read. */
#define TX_METADATA_OPTION (1 << 1)

#define TX_METADATA_TIMESTAMP (1 << 0)
#define TX_METADATA_CHECKSUM (1 << 1)

struct tx_metadata {
    __u64 flags;
    union {
        struct {
            __u16 csum_start;
            __u16 csum_offset;
            __u64 launch_time;
        } request;
        struct {
            __u64 tx_timestamp; /* by the device's clock; it shares its place with the request */
        } completion;
    };
};

struct umem_registration {
    __u64 addr;
    __u64 len;
    __u32 chunk_size;
    __u32 headroom;
    __u32 flags;
    __u32 tx_metadata_len;
};
