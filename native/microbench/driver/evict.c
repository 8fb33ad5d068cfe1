// SPDX-License-Identifier: Apache-2.0
#include "evict.h"
#include "fail.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define LINE 64

void evict(size_t bytes) {
    static volatile char *buffer;

    if (!buffer && bytes) {
        buffer = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (buffer == MAP_FAILED)
            fail("evict", errno, NULL, "a buffer of %zu bytes: %s", bytes, strerror(errno));
    }
    for (size_t at = 0; at < bytes; at += LINE)
        buffer[at]++;
}
