// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>
#include <stdint.h>

struct options;

// What a device's driver offers to AF_XDP on sending (xsk-features of the netlink family netdev).
#define OFFERS_TIMESTAMP (1 << 0)
#define OFFERS_CHECKSUM (1 << 1)
#define OFFERS_LAUNCH_TIME (1 << 2)

// Reads them. Returns 0, -ENOENT where the kernel has no such family (before Linux 6.3), -ENODATA where it
// does not tell them (before 6.8), or another negative errno.
int offers_read(unsigned ifindex, uint64_t *offers);

// The same from the kernel's reply to NETDEV_CMD_DEV_GET, its netlink header included.
int offers_parse(const void *reply, size_t bytes, uint64_t *offers);

// "tx-timestamp, tx-checksum", or "none".
const char *offers_text(uint64_t offers);

// Refuses, after failed(), a device that does not stamp what it sends, and devices that send and receive by
// two clocks.
int offers_require_stamps(const struct options *options, unsigned ifindex);
