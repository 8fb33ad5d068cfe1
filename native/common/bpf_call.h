// SPDX-License-Identifier: Apache-2.0
// libbpf's bpf(2) calls, seen by the tool that links libbpf. libbpf reaches the kernel through libc's
// syscall(); bpf_call.c defines that function, which comes before libc's in the dynamic linker's search.
#pragma once

#include <linux/bpf.h>
#include <stdbool.h>

// Makes the call itself, past bpf_call_seen(). Returns as bpf(2) does.
long bpf_call(int command, const union bpf_attr *attributes, unsigned size);

// Defined by the tool: stands in for each of libbpf's calls, and returns as bpf(2) does.
long bpf_call_seen(int command, const union bpf_attr *attributes, unsigned size);

// Whether it is the BPF_PROG_LOAD of this program: libbpf's feature probes load programs too, under names of
// their own. The kernel keeps BPF_OBJ_NAME_LEN - 1 bytes of a name.
bool bpf_call_loads(int command, const union bpf_attr *attributes, const char *program);
