// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "command_line.h"
#include "frame_sizes.h"

#include <linux/if_ether.h>
#include <stdio.h>
#include <string.h>

// An id of 0 to 4094, or `none`.
static inline bool option_vlan(const struct option_row *row, void *target, const char *text) {
    *(unsigned *)target = NO_VLAN;
    return !strcmp(text, "none") || option_unsigned(row, target, text);
}

// 4 or 6, within the row's limits.
static inline bool option_ip_version(const struct option_row *row, void *target, const char *text) {
    return option_unsigned(row, target, text) && *(unsigned *)target != 5;
}

// One size or several, with FCS and within the row's limits: struct frame_sizes.
static inline bool option_frame_sizes(const struct option_row *row, void *target, const char *text) {
    struct frame_sizes *sizes = target;
    unsigned bytes;
    char one[8];

    *sizes = (struct frame_sizes){0};
    for (const char *end = text - 1; sizes->count == 0 || *end; text = end + 1) {
        end = strchrnul(text, ',');
        if ((size_t)(end - text) >= sizeof(one))
            return false;
        snprintf(one, sizeof(one), "%.*s", (int)(end - text), text);
        if (sizes->count == MOST_SIZES || !option_unsigned(row, &bytes, one))
            return false;
        sizes->bytes[sizes->count++] = bytes - ETH_FCS_LEN;
        if (bytes - ETH_FCS_LEN > sizes->largest)
            sizes->largest = bytes - ETH_FCS_LEN;
    }
    return true;
}
