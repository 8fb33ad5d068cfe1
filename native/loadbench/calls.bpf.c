// SPDX-License-Identifier: Apache-2.0
// Time in the verifier and in the JIT of one process's loads. Needs no kernel header, so that it loads
// from 5.10 on.
#include "calls.h"

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct calls calls;

static __always_inline int is_watched(void) { return bpf_get_current_pid_tgid() >> 32 == calls.tgid; }

// Run by BPF_PROG_TEST_RUN: the kernel's own number of this process, which a PID namespace hides from it.
SEC("raw_tp/task_rename")
int whoami(void *context) {
    calls.tgid = bpf_get_current_pid_tgid() >> 32;
    return 0;
}

SEC("fentry/bpf_check")
int check_entry(void *context) {
    if (!is_watched())
        return 0;
    calls.in_check = 1;
    calls.check_start_ns = bpf_ktime_get_ns();
    return 0;
}

SEC("fexit/bpf_check")
int check_exit(void *context) {
    long long now = bpf_ktime_get_ns();
    if (!is_watched())
        return 0;
    calls.check_ns += now - calls.check_start_ns;
    calls.in_check = 0;
    return 0;
}

SEC("fentry/bpf_int_jit_compile")
int jit_entry(void *context) {
    if (is_watched())
        calls.jit_start_ns = bpf_ktime_get_ns();
    return 0;
}

SEC("fexit/bpf_int_jit_compile")
int jit_exit(void *context) {
    long long took = bpf_ktime_get_ns() - calls.jit_start_ns;
    if (!is_watched())
        return 0;
    calls.jit_ns += took;
    if (calls.in_check)
        calls.jit_inside_ns += took;
    return 0;
}
