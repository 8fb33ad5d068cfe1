// SPDX-License-Identifier: Apache-2.0
// How long BPF_PROG_LOAD took, and nothing else.
#pragma once

// Nanoseconds of the BPF_PROG_LOAD call that returned this file descriptor, or -1.
long long load_clock_ns(int program_fd);

// Whose refusals load_clock_first_errno() tells: libbpf's feature probes are refused on purpose.
void load_clock_watch(const char *program_name);

// errno of the first refusal of that program, or 0: libbpf asks again with a log, and that second call may
// fail with ENOSPC, which says nothing about the program.
int load_clock_first_errno(void);
