// SPDX-License-Identifier: Apache-2.0
// A memory control group for one load, so that its peak is that load's.
#pragma once

void cgroup_setup(void);
void cgroup_enter(void);

// Back to where the process came from. Sets the most bytes charged meanwhile, or returns why that is unknown.
const char *cgroup_leave(long long *peak_bytes);
