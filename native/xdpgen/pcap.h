// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

struct pcap_frame {
    const uint8_t *data;
    unsigned bytes; // without FCS
};

struct pcap {
    uint8_t *file;
    struct pcap_frame *frames;
    unsigned count;
};

// Reads a classic pcap of Ethernet frames, of either byte order, with µs or ns stamps.
int pcap_read(struct pcap *pcap, const char *path, unsigned longest);
void pcap_free(struct pcap *pcap);
