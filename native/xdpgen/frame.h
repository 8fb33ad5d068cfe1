// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "options.h"
#include "payload.h"

// Fills the headers, magic and flow of one flow, for the largest frame: all that its frames have in common.
// Flows beyond --flows repeat addresses: they exist where there are fewer flows than streams.
void frame_head_fill(struct frame_head *head, const struct options *options, unsigned flow, unsigned streams);

// What the magic field of this run's frames holds, in host byte order.
uint32_t frame_magic(const struct options *options);
