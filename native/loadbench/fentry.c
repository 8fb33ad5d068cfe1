// SPDX-License-Identifier: Apache-2.0
#include "fentry.h"
#include "fail.h"
#include "refusal.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

extern const char embedded_calls_start[], embedded_calls_end[];

static struct calls *shared;

static void attach_all(struct bpf_object *object) {
    struct bpf_program *program;
    bpf_object__for_each_program(program, object) {
        const char *name = bpf_program__name(program);
        if (strcmp(name, "whoami") && !bpf_program__attach(program))
            fail("trace", errno, refusal_words(), "%s cannot be attached: %s", name, strerror(errno));
    }
}

static void learn_tgid(struct bpf_object *object) {
    LIBBPF_OPTS(bpf_test_run_opts, options);
    struct bpf_program *program = bpf_object__find_program_by_name(object, "whoami");
    if (bpf_prog_test_run_opts(bpf_program__fd(program), &options))
        fail("trace", errno, refusal_words(), "the process' number cannot be learnt: %s", strerror(errno));
}

void fentry_arm(void) {
    struct bpf_object *object =
        bpf_object__open_mem(embedded_calls_start, embedded_calls_end - embedded_calls_start, NULL);
    if (!object || bpf_object__load(object))
        fail("trace", errno, refusal_words(),
             "this kernel has no fentry for bpf_check() and bpf_int_jit_compile() (%s%s)",
             refusal_program("calls"),
             refusal_compiler(embedded_calls_start, embedded_calls_end - embedded_calls_start));
    learn_tgid(object);
    int memory = bpf_object__find_map_fd_by_name(object, ".bss");
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    if (shared == MAP_FAILED)
        fail("trace", errno, refusal_words(), "what fentry sees cannot be read: %s", strerror(errno));
    attach_all(object);
}

void fentry_begin(void) { shared->check_ns = shared->jit_ns = shared->jit_inside_ns = 0; }

const struct calls *fentry_calls(void) { return shared; }
