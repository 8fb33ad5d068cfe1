// SPDX-License-Identifier: Apache-2.0
// Pages and branches of one BPF_PROG_LOAD. Needs no BTF and no kernel header, so that it loads from 5.10 on.
#include "watch.h"

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct watch watch;

static __always_inline unsigned int current_tgid(void) { return bpf_get_current_pid_tgid() >> 32; }

static __always_inline int is_watched(void) { return watch.armed && current_tgid() == watch.tgid; }

// Run by BPF_PROG_TEST_RUN: the kernel's own number of this process, which a PID namespace hides from it.
SEC("raw_tp/task_rename")
int whoami(void *context) {
    watch.tgid = current_tgid();
    return 0;
}

// Arguments: page, order, flags, migrate type. One process, one thread: nobody else writes these counts.
SEC("raw_tp/mm_page_alloc")
int page_alloc(struct bpf_raw_tracepoint_args *context) {
    if (!is_watched() || !context->args[0])
        return 0;
    watch.pages += 1LL << (context->args[1] & 31);
    if (watch.pages > watch.peak_pages)
        watch.peak_pages = watch.pages;
    return 0;
}

SEC("raw_tp/mm_page_free")
int page_free(struct bpf_raw_tracepoint_args *context) {
    if (is_watched())
        watch.pages -= 1LL << (context->args[1] & 31);
    return 0;
}

static __always_inline int count_branch(void) {
    if (is_watched())
        watch.branches++;
    return 0;
}

// The same twice: a kernel has the one, the other, or both.
SEC("fentry/push_stack")
int branch_fentry(void *context) { return count_branch(); }

SEC("kprobe/push_stack")
int branch_kprobe(void *context) { return count_branch(); }
