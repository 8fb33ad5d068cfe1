// SPDX-License-Identifier: Apache-2.0
// bpf(2), without a library: what is loaded are raw instructions.
#pragma once

#include <linux/bpf.h>
#include <stddef.h>
#include <stdint.h>

int bpf_load(enum bpf_prog_type type, const void *code, size_t bytes, char *log, size_t log_bytes);
int bpf_map(enum bpf_map_type type, uint32_t key_bytes, uint32_t value_bytes, uint32_t entries,
            uint32_t flags);
int bpf_set(int map, const void *key, const void *value);
// Also tells what one run took, on average, by the kernel's own clock: what a test run does before and after
// is not in it (XDP programs are given to a dispatcher, which waits for an RCU grace period).
int bpf_repeat(int program, const void *packet, size_t bytes, uint32_t times, uint32_t *result, uint32_t *ns);
int bpf_sizes(int program, long long *xlated, long long *jited);
int bpf_compiles(void); // 1: the kernel compiles what is loaded now; 0: it interprets; -1 with errno
