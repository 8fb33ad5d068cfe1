// SPDX-License-Identifier: Apache-2.0
#include "watch_load.h"
#include "cgroup.h"
#include "pushing.h"
#include "refusal.h"
#include "watch.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern const char embedded_watch_start[], embedded_watch_end[];

static struct watch *shared;
static char load_reason[256];
static char pages_reason[256];
static char branches_reason[256];
static bool is_traced; // push_stack() itself, by a probe

static struct bpf_program *program(struct bpf_object *object, const char *name) {
    return bpf_object__find_program_by_name(object, name);
}

static int learn_tgid(struct bpf_object *object) {
    LIBBPF_OPTS(bpf_test_run_opts, options);
    return bpf_prog_test_run_opts(bpf_program__fd(program(object, "whoami")), &options);
}

static struct bpf_object *load_with(const char *branch_program) {
    static const char *const BRANCH_PROGRAMS[] = {"branch_fentry", "branch_kprobe"};
    refusal_forget();
    struct bpf_object *object =
        bpf_object__open_mem(embedded_watch_start, embedded_watch_end - embedded_watch_start, NULL);
    if (!object)
        return NULL;
    for (size_t i = 0; i < 2; i++)
        bpf_program__set_autoload(program(object, BRANCH_PROGRAMS[i]),
                                  branch_program && !strcmp(branch_program, BRANCH_PROGRAMS[i]));
    if (!bpf_object__load(object) &&
        (!branch_program || bpf_program__attach(program(object, branch_program))))
        return object;
    snprintf(load_reason, sizeof(load_reason), "%s%s: %s", refusal_program("watch"),
             refusal_compiler(embedded_watch_start, embedded_watch_end - embedded_watch_start),
             refusal_reason());
    bpf_object__close(object);
    return NULL;
}

// An object with the first way to count branches that this kernel has, or without any.
static struct bpf_object *load_best(void) {
    static const char *const WAYS[] = {"branch_fentry", "branch_kprobe", NULL};
    struct bpf_object *object = NULL;
    size_t way = 0;
    for (; !object && way < 3; way++)
        object = load_with(WAYS[way]);
    is_traced = object && WAYS[way - 1];
    return object;
}

// A kernel that permits no probe still tells who called kmalloc: push_stack() does so once per call.
static void count_by_allocations(void) {
    struct pushing pushing;
    const char *wrong = pushing_find(&pushing);
    if (wrong) {
        snprintf(branches_reason, sizeof(branches_reason),
                 "push_stack() can be traced neither by a probe nor by its allocations: %s", wrong);
        return;
    }
    shared->push_stack_begin = pushing.begin;
    shared->push_stack_end = pushing.end;
    shared->element_bytes = pushing.element_bytes;
}

void watch_setup(void) {
    cgroup_setup();
    struct bpf_object *object = load_best();
    if (!object || !bpf_program__attach(program(object, "page_alloc")) ||
        !bpf_program__attach(program(object, "page_free")) ||
        !bpf_program__attach(program(object, "slab_alloc")) ||
        !bpf_program__attach(program(object, "slab_free")) || learn_tgid(object)) {
        const char *why = object || !*load_reason ? strerror(errno) : load_reason;
        snprintf(pages_reason, sizeof(pages_reason), "the tracepoints cannot be used: %.200s", why);
        snprintf(branches_reason, sizeof(branches_reason), "%.200s", pages_reason);
        return;
    }
    int memory = bpf_object__find_map_fd_by_name(object, ".bss");
    void *mapped = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    if (mapped == MAP_FAILED)
        snprintf(pages_reason, sizeof(pages_reason), "the counts cannot be read: %s", strerror(errno));
    else
        shared = mapped;
    if (shared && !is_traced)
        count_by_allocations();
}

void watch_begin(void) {
    cgroup_enter();
    if (!shared)
        return;
    shared->pages = shared->peak_pages = 0;
    shared->slab_bytes = shared->peak_slab_bytes = 0;
    shared->slab_lost = 0;
    shared->epoch++;
    shared->branches = 0;
    __atomic_store_n(&shared->armed, 1, __ATOMIC_SEQ_CST);
}

void watch_end(struct record *record) {
    if (shared)
        __atomic_store_n(&shared->armed, 0, __ATOMIC_SEQ_CST);
    record->cgroup_reason = cgroup_leave(&record->cgroup_peak_bytes);
    record->peak_reason = record->kmalloc_reason = shared ? NULL : pages_reason;
    record->branches_reason = branches_reason[0] ? branches_reason : NULL;
    if (!shared)
        return;
    record->peak_bytes = shared->peak_pages * sysconf(_SC_PAGESIZE);
    if (shared->slab_lost)
        record->kmalloc_reason = "more allocations were alive than can be followed";
    else
        record->kmalloc_peak_bytes = shared->peak_slab_bytes;
    if (!branches_reason[0])
        record->branches = shared->branches;
}
