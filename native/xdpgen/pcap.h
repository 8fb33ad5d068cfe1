// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

struct pcap_frame {
    const uint8_t *data;
    unsigned bytes; // without FCS
    uint64_t ns;    // when it was captured; once scheduled, when it is due after the first one
};

struct pcap {
    uint8_t *file;
    struct pcap_frame *frames;
    unsigned count;
    uint64_t period_ns; // once scheduled: from one round of all frames to the next
};

// Reads a classic pcap of Ethernet frames, of either byte order, with µs or ns stamps.
int pcap_read(struct pcap *pcap, const char *path, unsigned longest);

// Makes each frame due when it was captured, counted from the first one, `speed` times as fast. The first of
// the next round follows the last one after the mean gap. Fails where the stamps tell no gaps.
int pcap_schedule(struct pcap *pcap, const char *path, double speed);

// Frames of all rounds that are due before so long has passed.
uint64_t pcap_due(const struct pcap *pcap, uint64_t ns);

void pcap_free(struct pcap *pcap);
