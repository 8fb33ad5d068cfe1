// SPDX-License-Identifier: Apache-2.0
// Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, appendix A.
#include "decode.h"
#include "marks.h"

#include <string.h>

enum { HALT = 0xf4 };

static bool is_prefix(uint8_t byte) {
    return byte == 0x3e || byte == 0x2e || byte == 0xf2 || byte == 0xf3 || (byte & 0xf0) == 0x40;
}

static enum ending ending_of(const uint8_t *code, size_t size) {
    const uint8_t *end = code + size;

    while (end - code > 1 && is_prefix(*code))
        code++;
    if (*code == 0xe8)
        return CALLS;
    if (*code == 0xff && end - code > 1 && (code[1] & 0x38) == 0x10)
        return CALLS;
    if (*code == 0xc3 || *code == 0xc2)
        return RETURNS;
    if ((*code & 0xf0) == 0x70 || (*code & 0xfc) == 0xe0)
        return BRANCHES;
    return *code == 0x0f && end - code > 1 && (code[1] & 0xf0) == 0x80 ? BRANCHES : GOES_ON;
}

static unsigned mark_of(const uint8_t *code, size_t size, uint16_t *value) {
    static const uint8_t mark[] = {X86_MARK(0)}, part[] = {X86_PART(0), 0, 0, 0, 0};

    if (size == sizeof(mark) && !memcmp(code, mark, 3) && !memcmp(code + 4, mark + 4, 3))
        return code[3];
    if (size != sizeof(part) || memcmp(code, part, 3) || code[3] < MARK_PART || code[3] > MARK_PART + 3)
        return 0;
    *value = code[4] | code[5] << 8;
    return code[3];
}

// rdtsc or rdtscp: how a kernel and user space read the time of such a guest.
static bool looks_at_clock(const uint8_t *code, size_t size) {
    return (size == 2 && code[0] == 0x0f && code[1] == 0x31) ||
           (size == 3 && code[0] == 0x0f && code[1] == 0x01 && code[2] == 0xf9);
}

static bool may_be_left(const uint8_t *code, size_t size) { return size == 1 && *code == HALT; }

const struct machine x86_64 = {"x86_64", ending_of, mark_of, looks_at_clock, may_be_left};
