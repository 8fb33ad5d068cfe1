// SPDX-License-Identifier: Apache-2.0
// Memory and branches of one BPF_PROG_LOAD. Needs no BTF and no kernel header, so that it loads from 5.10 on.
#include "watch.h"

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct watch watch;

static __always_inline unsigned current_tgid(void) { return bpf_get_current_pid_tgid() >> 32; }

static __always_inline int is_watched(void) { return watch.armed && current_tgid() == watch.tgid; }

// Run by BPF_PROG_TEST_RUN: the kernel's own number of this process, which a PID namespace hides from it.
SEC("raw_tp/task_rename")
int whoami(void *context) {
    watch.tgid = current_tgid();
    return 0;
}

// Arguments: page, order, flags, migrate type. One process, one thread: nothing else writes these counts.
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

// What kmalloc gave out and kfree has not taken back yet, by its address.
struct allocation {
    unsigned long long bytes;
    unsigned long long epoch;
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1 << 19);
    __type(key, unsigned long long);
    __type(value, struct allocation);
} live SEC(".maps");

static __always_inline void count_element(unsigned long long call_site, unsigned long long bytes) {
    if (call_site > watch.push_stack_begin && call_site < watch.push_stack_end &&
        bytes == watch.element_bytes)
        watch.branches++;
}

// Arguments: call site, address, bytes asked for, bytes given, flags (and a node, from 6.1 on).
SEC("raw_tp/kmalloc")
int slab_alloc(struct bpf_raw_tracepoint_args *context) {
    unsigned long long address = context->args[1];
    struct allocation made = {context->args[3], watch.epoch};
    if (!is_watched() || !address)
        return 0;
    count_element(context->args[0], context->args[2]);
    if (bpf_map_update_elem(&live, &address, &made, BPF_ANY)) {
        watch.slab_lost++;
        return 0;
    }
    watch.slab_bytes += made.bytes;
    if (watch.slab_bytes > watch.peak_slab_bytes)
        watch.peak_slab_bytes = watch.slab_bytes;
    return 0;
}

// Arguments: call site, address. Who frees does not matter: memory of a load may be freed after a grace
// period.
SEC("raw_tp/kfree")
int slab_free(struct bpf_raw_tracepoint_args *context) {
    unsigned long long address = context->args[1];
    struct allocation *made = bpf_map_lookup_elem(&live, &address);
    if (!made)
        return 0;
    if (made->epoch == watch.epoch)
        watch.slab_bytes -= made->bytes;
    bpf_map_delete_elem(&live, &address);
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
