// SPDX-License-Identifier: Apache-2.0
// The verifier's push_stack() in this kernel: where its code lies, and how many bytes it allocates per call.
#pragma once

struct pushing {
    unsigned long long begin, end; // addresses: its first, and that of what follows
    unsigned long long element_bytes;
};

// Returns NULL, or why it is not known.
const char *pushing_find(struct pushing *pushing);
