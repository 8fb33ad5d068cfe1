// SPDX-License-Identifier: Apache-2.0
// xdpgen --frames: a pcap as bytes.
#include "pcap.h"
#include "refusing.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int file = -1;
    struct pcap pcap = {};
    char path[32];

    if (file < 0)
        file = memfd_create("pcap", 0);
    if (ftruncate(file, 0) || pwrite(file, data, size, 0) != (ssize_t)size)
        return 0;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
    if (!pcap_read(&pcap, path, 4096))
        for (unsigned frame = 0; frame < pcap.count; frame++)
            if (pcap.frames[frame].data + pcap.frames[frame].bytes > pcap.file + size)
                __builtin_trap();
    pcap_free(&pcap);
    return 0;
}
