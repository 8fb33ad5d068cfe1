// SPDX-License-Identifier: Apache-2.0
// No-ops that costdrive runs and costplugin sees: nopl with a displacement whose first byte says which.
#pragma once

enum mark { MARK_SWITCH = 1, MARK_BEGIN, MARK_END };

#define MARK_BYTES(which) 0x0f, 0x1f, 0x80, which, 'p', 'd', 'x'
