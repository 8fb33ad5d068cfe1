// SPDX-License-Identifier: Apache-2.0
// What a kernel finds in BPF.
#include <linux/bpf.h>
#include <linux/if_ether.h>

#include <bpf/bpf_helpers.h>

#define COUNTER SEC(".data.xdplab_count")
#define SUBPROGRAM __noinline // verified once, by itself
#define CLOCK() bpf_ktime_get_ns()
#define WORLD_RANDOM(state) bpf_get_prandom_u32()

#include "../record.h"

#include "../kernels/common.h"

// Of a section of its own: the driver finds it there, mapped into its memory.
volatile struct bench_record record SEC(".data.record");

char LICENSE[] SEC("license") = "Dual BSD/GPL";
