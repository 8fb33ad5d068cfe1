// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

// Reads the device's own MAC.
int link_mac(const char *interface, uint8_t mac[6]);

// The largest frame, without FCS, that the kernel hands to the device for an XDP program.
int link_largest_frame(const char *interface, unsigned *bytes);

// Frames that the device sent and received, as its link statistics count them (they wrap at 32 bits).
struct link_counts {
    uint32_t sent, received;
};

int link_counts(const char *interface, struct link_counts *counts);

// Frames the device gave up on while sending, as its link statistics count them (they wrap at 32 bits).
int link_tx_failures(const char *interface, uint32_t *failures);
