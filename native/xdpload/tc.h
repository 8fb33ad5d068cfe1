// SPDX-License-Identifier: Apache-2.0
// Programs that see the kernel's packets, where XDP would pass them on: a filter of a clsact qdisc, or tcx.
#pragma once

#include "options.h"

#define TCX_INGRESS 46 // BPF_TCX_INGRESS, since Linux 6.6: older headers lack it

// The tcx program that sees packets first, or that of a filter such as `tc_attach` makes, or 0.
unsigned tc_first(int ifindex);

// Attaches a filter, and has a process wait beside this one that takes it off when this one ends, however it
// does: a qdisc stays when its maker dies. `attach_ns` is the time of qdisc and filter alone. Returns 0 or
// -errno; -EEXIST where the interface has such a qdisc.
int tc_attach(int program, int ifindex, long long *attach_ns);

// Whether the kernel says that this program sees the interface's packets, as the first one, in this mode.
bool tc_runs(enum mode mode, int ifindex, unsigned program_id);

bool tc_detach(void); // whether no qdisc stays; safe in a signal handler
