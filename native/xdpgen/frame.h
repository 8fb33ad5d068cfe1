// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "options.h"
#include "payload.h"

// Fills the headers and the magic of the largest frame, and 0 where frame_write_flow writes.
void frame_head_fill(struct frame_head *head, const struct options *options);

// What the magic field of this run's frames holds, in host byte order.
uint32_t frame_magic(const struct options *options);
