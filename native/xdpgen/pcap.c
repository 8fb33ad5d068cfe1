// SPDX-License-Identifier: Apache-2.0
#include "pcap.h"
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
#define LINKTYPE_MASK 0x0fffffffu /* the bits above it tell of an FCS */

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
    if ((in_order(reader, header.linktype) & LINKTYPE_MASK) != LINKTYPE_ETHERNET)
        return failed("frames", EINVAL, NULL, "%s: its frames are not Ethernet", reader->path);
    return 0;
}

static int read_frame(struct pcap *pcap, struct reader *reader, unsigned longest) {
    struct frame_header header;
    size_t rest = reader->bytes - reader->at;
    unsigned number = pcap->count + 1, bytes;

    if (rest < sizeof(header))
        return failed("frames", EINVAL, NULL, "%s: ends within frame %u", reader->path, number);
    memcpy(&header, pcap->file + reader->at, sizeof(header));
    bytes = in_order(reader, header.captured);
    if (bytes > rest - sizeof(header))
        return failed("frames", EINVAL, NULL, "%s: ends within frame %u", reader->path, number);
    if (bytes != in_order(reader, header.original))
        return failed("frames", EINVAL, NULL, "%s: frame %u was not captured whole", reader->path, number);
    if (bytes < ETH_HLEN || bytes > longest)
        return failed("frames", EINVAL, NULL, "%s: frame %u has %u bytes; possible are %d to %u",
                      reader->path, number, bytes, ETH_HLEN, longest);
    pcap->frames[pcap->count++] =
        (struct pcap_frame){.data = pcap->file + reader->at + sizeof(header), .bytes = bytes};
    reader->at += sizeof(header) + bytes;
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

void pcap_free(struct pcap *pcap) {
    free(pcap->frames);
    free(pcap->file);
}
