// SPDX-License-Identifier: Apache-2.0
// No-ops that costdrive runs and costplugin sees. MARK: nopl with a displacement whose first byte says which.
// MARK_ADDRESS: nopl with an index that says which, and the low half of an address in the kernel.
#pragma once

enum mark { MARK_SWITCH = 1, MARK_BEGIN, MARK_END, MARK_ROOT = 0x71, MARK_PROGRAM };

#define MARK_BYTES(which) 0x0f, 0x1f, 0x80, which, 'p', 'd', 'x'
#define MARK_ADDRESS_BYTES(which) 0x0f, 0x1f, 0x84, which
