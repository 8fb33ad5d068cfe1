// SPDX-License-Identifier: Apache-2.0
// What the two ends of the link (ends.bpf.c) and their loader agree on.
#pragma once

#include <linux/types.h>

enum { MOST_FRAME_BYTES = 1536, FRAME_WORDS = MOST_FRAME_BYTES / 4 };

struct given_frame {
    __u32 bytes; // without FCS
    __u32 words[FRAME_WORDS];
};
