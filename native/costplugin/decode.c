// SPDX-License-Identifier: Apache-2.0
#include "decode.h"

#include <stdbool.h>

static bool is_prefix(uint8_t byte) {
    return byte == 0x3e || byte == 0x2e || byte == 0xf2 || byte == 0xf3 || (byte & 0xf0) == 0x40;
}

enum ending ending_of(const uint8_t *code, size_t size) {
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
