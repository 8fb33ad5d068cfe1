/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "command_line.h"
#include "payload.h"

#include <string.h>

/* An id of 0 to 4094, or `none`. */
static inline bool option_vlan(const struct option_row *row, void *target, const char *text) {
    *(unsigned int *)target = NO_VLAN;
    return !strcmp(text, "none") || option_unsigned(row, target, text);
}

/* 4 or 6, within the row's limits. */
static inline bool option_ip_version(const struct option_row *row, void *target, const char *text) {
    return option_unsigned(row, target, text) && *(unsigned int *)target != 5;
}
