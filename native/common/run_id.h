// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "command_line.h"
#include "payload.h"

#include <ctype.h>
#include <stdlib.h>

// Up to 16 hex digits, folded to the 16 bits that a frame carries; four digits stay what they are.
static inline bool option_run_id(const struct option_row *row, void *target, const char *text) {
    char *end;
    unsigned long long id = strtoull(text, &end, 16);

    (void)row;
    if (!isxdigit((unsigned char)*text) || *end || end - text > 16)
        return false;
    *(unsigned *)target = (id ^ id >> 16 ^ id >> 32 ^ id >> 48) & PAYLOAD_RUN_ID_MASK;
    return true;
}
