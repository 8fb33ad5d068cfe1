// SPDX-License-Identifier: Apache-2.0
// Programs that see the kernel's packets: where XDP would pass them on, a filter of a clsact qdisc, or tcx;
// and those of a netkit's primary end that see what its peer sends.
#pragma once

#include "options.h"

// Where a bpf_link holds the program of a mode. Older headers lack both.
static inline int tc_link_hook(enum mode mode) {
    return mode == MODE_TCX ? 46 : 55; // BPF_TCX_INGRESS, since Linux 6.6; BPF_NETKIT_PEER, since 6.7
}

// The program of tcx or netkit that sees packets first, or that of a filter such as `tc_attach` makes, or 0.
unsigned tc_first(int ifindex);

// Attaches a filter, and has a process wait beside this one that takes it off when this one ends, however it
// does: a qdisc stays when its maker dies. `attach_ns` is the time of qdisc and filter alone. Returns 0 or
// -errno; -EEXIST where the interface has such a qdisc.
int tc_attach(int program, int ifindex, long long *attach_ns);

// Whether the kernel says that this program sees the interface's packets, as the first one, in this mode.
bool tc_runs(enum mode mode, int ifindex, unsigned program_id);

bool tc_detach(void); // whether no qdisc stays; safe in a signal handler
