// SPDX-License-Identifier: Apache-2.0
#include "pcap.h"
#include "clock.h"
#include "fail.h"

#include <byteswap.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC_US 0xa1b2c3d4u
#define MAGIC_NS 0xa1b23c4du
#define LINKTYPE_ETHERNET 1
// The link type also tells whether the FCS's length is told, and that length in units of 2 bytes.
#define HAS_FCS (1u << 26)
#define FCS_SHIFT 28

struct file_header {
    uint32_t magic;
    uint16_t major, minor;
    uint32_t zone, accuracy, longest, linktype;
};

struct frame_header {
    uint32_t seconds, fraction, captured, original;
};

struct reader {
    const char *path;
    size_t bytes, at;
    unsigned fcs;
    unsigned fraction_ns; // unit of a stamp's second part
    bool swapped;
};

static uint32_t in_order(const struct reader *reader, uint32_t value) {
    return reader->swapped ? bswap_32(value) : value;
}

static int read_file(struct pcap *pcap, struct reader *reader) {
    FILE *file = fopen(reader->path, "rb");
    long bytes;

    if (!file)
        return failed("frames", errno, NULL, "%s: %s", reader->path, strerror(errno));
    fseek(file, 0, SEEK_END);
    bytes = ftell(file);
    rewind(file);
    pcap->file = bytes > 0 ? malloc(bytes) : NULL;
    reader->bytes = pcap->file ? fread(pcap->file, 1, bytes, file) : 0;
    fclose(file);
    return pcap->file ? 0 : failed("frames", EINVAL, NULL, "%s: empty, or not a file", reader->path);
}

// The same rules as src/xdplab/formats/pcap.py.
static int read_link_type(struct reader *reader, uint32_t type) {
    uint32_t fcs = type >> FCS_SHIFT;

    if ((type & ~(fcs << FCS_SHIFT | HAS_FCS)) != LINKTYPE_ETHERNET)
        return failed("frames", EINVAL, NULL, "%s: its frames are not Ethernet (link type %#x)", reader->path,
                      type);
    if (fcs && !(type & HAS_FCS))
        return failed("frames", EINVAL, NULL,
                      "%s: its link type %#x does not say whether its frames have an FCS", reader->path,
                      type);
    reader->fcs = 2 * fcs;
    return 0;
}

static int read_header(const struct pcap *pcap, struct reader *reader) {
    struct file_header header;

    if (reader->bytes < sizeof(header))
        return failed("frames", EINVAL, NULL, "%s: too short for a pcap", reader->path);
    memcpy(&header, pcap->file, sizeof(header));
    reader->at = sizeof(header);
    reader->swapped = header.magic == bswap_32(MAGIC_US) || header.magic == bswap_32(MAGIC_NS);
    header.magic = in_order(reader, header.magic);
    if (header.magic != MAGIC_US && header.magic != MAGIC_NS)
        return failed("frames", EINVAL, NULL,
                      "%s: not a classic pcap (pcapng: convert it, `tcpdump -r A -w B`)", reader->path);
    reader->fraction_ns = header.magic == MAGIC_NS ? 1 : 1000;
    return read_link_type(reader, in_order(reader, header.linktype));
}

static int read_frame(struct pcap *pcap, struct reader *reader, unsigned longest) {
    struct frame_header header;
    size_t rest = reader->bytes - reader->at;
    unsigned number = pcap->count + 1, captured, bytes;

    if (rest < sizeof(header))
        return failed("frames", EINVAL, NULL, "%s: ends within frame %u", reader->path, number);
    memcpy(&header, pcap->file + reader->at, sizeof(header));
    captured = in_order(reader, header.captured);
    bytes = in_order(reader, header.original);
    if (captured > rest - sizeof(header))
        return failed("frames", EINVAL, NULL, "%s: ends within frame %u", reader->path, number);
    if (captured < bytes)
        return failed("frames", EINVAL, NULL, "%s: frame %u was not captured whole: %u of %u bytes",
                      reader->path, number, captured, bytes);
    if (bytes < ETH_HLEN + reader->fcs || bytes - reader->fcs > longest)
        return failed("frames", EINVAL, NULL, "%s: frame %u has %d bytes; possible are %d to %u",
                      reader->path, number, (int)bytes - (int)reader->fcs, ETH_HLEN, longest);
    pcap->frames[pcap->count++] =
        (struct pcap_frame){.data = pcap->file + reader->at + sizeof(header),
                            .bytes = bytes - reader->fcs,
                            .ns = in_order(reader, header.seconds) * NS_PER_SECOND +
                                  (uint64_t)in_order(reader, header.fraction) * reader->fraction_ns};
    reader->at += sizeof(header) + captured;
    return 0;
}

int pcap_read(struct pcap *pcap, const char *path, unsigned longest) {
    struct reader reader = {.path = path};
    int error = read_file(pcap, &reader) ?: read_header(pcap, &reader);

    if (error)
        return error;
    pcap->frames = calloc(reader.bytes / sizeof(struct frame_header) + 1, sizeof(*pcap->frames));
    if (!pcap->frames)
        return failed("frames", ENOMEM, NULL, "%s: no memory for its frames", path);
    while (!error && reader.at < reader.bytes)
        error = read_frame(pcap, &reader, longest);
    if (!error && !pcap->count)
        return failed("frames", EINVAL, NULL, "%s: holds no frame", path);
    return error;
}

// Longer than any burst, and short enough for a schedule's unit, of which 2^44 ns are too many.
#define FARTHEST_NS (1ull << 43)

static uint64_t scaled(uint64_t ns, double speed) {
    const double due = (double)ns / speed;

    return due < FARTHEST_NS ? due + 0.5 : FARTHEST_NS;
}

int pcap_schedule(struct pcap *pcap, const char *path, double speed) {
    const uint64_t first = pcap->frames[0].ns, span = pcap->frames[pcap->count - 1].ns - first;
    uint64_t before = first;

    for (unsigned i = 0; i < pcap->count; i++) {
        const uint64_t ns = pcap->frames[i].ns;
        if (ns < before)
            return failed("frames", EINVAL, NULL, "%s: frame %u was captured before frame %u", path, i + 1,
                          i);
        before = ns;
        pcap->frames[i].ns = scaled(ns - first, speed);
    }
    if (!span)
        return failed("frames", EINVAL, NULL, "%s: all frames have one time stamp: there are no gaps", path);
    pcap->period_ns = scaled(span + span / (pcap->count - 1), speed) ?: 1;
    return 0;
}

uint64_t pcap_due(const struct pcap *pcap, uint64_t ns) {
    uint64_t due = ns / pcap->period_ns * pcap->count;

    for (unsigned i = 0; i < pcap->count && pcap->frames[i].ns < ns % pcap->period_ns; i++)
        due++;
    return due;
}

void pcap_free(struct pcap *pcap) {
    free(pcap->frames);
    free(pcap->file);
}
