// SPDX-License-Identifier: Apache-2.0
// Programs that see the kernel's packets, where XDP would pass them on: a filter of a clsact qdisc, or tcx.
#pragma once

#include "options.h"

#define TCX_INGRESS 46 // BPF_TCX_INGRESS, since Linux 6.6: older headers lack it

unsigned tcx_first(int ifindex); // the tcx program that sees packets first, or 0

// Attaches a filter, and has a process wait beside this one that takes it off when this one ends, however it
// does: a qdisc stays when its maker dies. Returns 0 or -errno; -EEXIST where the interface has such a qdisc.
int tc_attach(int program, int ifindex);

// Whether the kernel says that this program sees the interface's packets, as the first one, in this mode.
bool tc_runs(enum mode mode, int ifindex, unsigned program_id);

void tc_detach(void); // safe in a signal handler
