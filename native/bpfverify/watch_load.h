// SPDX-License-Identifier: Apache-2.0
// Memory and branches of one BPF_PROG_LOAD: pages by tracepoints, charged bytes by a control group of its
// own, branches by the calls of push_stack(). What a kernel does not let count stays unknown, with the
// reason.
#pragma once

#include "record.h"

// Before the first load of this process. Never fails: what cannot be counted becomes a reason.
void watch_setup(void);

void watch_begin(void);
void watch_end(struct record *record);
