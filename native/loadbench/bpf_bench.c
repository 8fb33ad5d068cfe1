// SPDX-License-Identifier: Apache-2.0
#include "bench.h"
#include "clock.h"
#include "fail.h"
#include "fentry.h"
#include "json.h"
#include "load_call.h"
#include "network.h"
#include "refusal.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define STATISTICS 4 // log_level: the verifier's last lines only

enum step { OPEN, PREPARE, LOAD, ATTACH, DETACH, CLOSE, LOGGED_US, CHECK, JIT, JIT_INSIDE, STEPS };

static const char *const STEP_NAMES[STEPS] = {
    [OPEN] = "open_ns",     [PREPARE] = "prepare_ns",       [LOAD] = "load_ns",   [ATTACH] = "attach_ns",
    [DETACH] = "detach_ns", [CLOSE] = "close_ns",           [CHECK] = "check_ns", [LOGGED_US] = "logged_us",
    [JIT] = "jit_ns",       [JIT_INSIDE] = "jit_inside_ns",
};

static long long cycles[MOST_REPETITIONS][STEPS];
static char verifier_log[16 << 20]; // older kernels refuse a program whose log does not fit

static struct bpf_object *open_object(const char *path) {
    struct bpf_object *object = bpf_object__open_file(path, NULL);
    if (!object)
        fail("open", errno, refusal_words(), "libbpf cannot open the object");
    return object;
}

static struct bpf_program *only_program(struct bpf_object *object) {
    struct bpf_program *program = bpf_object__next_program(object, NULL);
    if (!program)
        fail("open", 0, NULL, "the object holds no program");
    verifier_log[0] = '\0';
    bpf_program__set_log_buf(program, verifier_log, sizeof(verifier_log));
    bpf_program__set_log_level(program, bench.watch == LOG ? STATISTICS : 0);
    return program;
}

// By libbpf: maps, BTF and relocations, and BPF_PROG_LOAD, which load_call times.
static void load_object(const char *path, struct bpf_object *object, struct bpf_program *program,
                        unsigned rank) {
    load_call = (struct load_call){bpf_program__name(program), rank, UNKNOWN, 0};
    int error = bpf_object__load(object);
    if (!error)
        return;
    if (load_call.error)
        fail("load", load_call.error, *verifier_log ? verifier_log : refusal_words(), "%s%s is refused: %s",
             load_call.program, refusal_compiler_of(path), strerror(load_call.error));
    fail("prepare", -error, refusal_words(), "libbpf cannot prepare %s", load_call.program);
}

static long long logged_us(void) {
    long long us;
    const char *found = strstr(verifier_log, "verification time ");
    return found && sscanf(found, "verification time %lld usec", &us) == 1 ? us : UNKNOWN;
}

static void attach(struct bpf_program *program, int interface, long long *cycle) {
    long long start = now_ns();
    int link = bpf_link_create(bpf_program__fd(program), interface, BPF_XDP, NULL);
    cycle[ATTACH] = now_ns() - start;
    if (link < 0)
        fail("attach", errno, refusal_words(), "it cannot be attached to a veth: %s", strerror(errno));
    start = now_ns();
    if (bpf_link_detach(link))
        fail("detach", errno, refusal_words(), "it cannot be detached: %s", strerror(errno));
    cycle[DETACH] = now_ns() - start;
    close(link);
}

static void keep_calls(long long *cycle) {
    const struct calls *calls = fentry_calls();
    cycle[CHECK] = calls ? calls->check_ns : UNKNOWN;
    cycle[JIT] = calls ? calls->jit_ns : UNKNOWN;
    cycle[JIT_INSIDE] = calls ? calls->jit_inside_ns : UNKNOWN;
}

static void run_cycle(const char *path, int interface, unsigned rank) {
    long long *cycle = cycles[rank];
    long long start = now_ns();
    struct bpf_object *object = open_object(path);
    cycle[OPEN] = now_ns() - start;
    struct bpf_program *program = only_program(object);
    start = now_ns();
    load_object(path, object, program, rank);
    cycle[PREPARE] = now_ns() - start - load_call.took_ns;
    cycle[LOAD] = load_call.took_ns;
    keep_calls(cycle);
    cycle[LOGGED_US] = logged_us();
    attach(program, interface, cycle);
    start = now_ns();
    bpf_object__close(object);
    cycle[CLOSE] = now_ns() - start;
}

static long long charged_bytes(int fd) {
    char path[64], line[128];
    long long bytes = UNKNOWN;
    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file))
        sscanf(line, "memlock: %lld", &bytes);
    if (file)
        fclose(file);
    return bytes;
}

static long long maps_bytes(struct bpf_object *object) {
    struct bpf_map *map;
    long long sum = 0;
    bpf_object__for_each_map(map, object) {
        long long bytes = charged_bytes(bpf_map__fd(map));
        if (bytes == UNKNOWN)
            return UNKNOWN;
        sum += bytes;
    }
    return sum;
}

// How large it is in the kernel; a load of its own, which is not timed.
static void print_sizes(const char *path) {
    struct bpf_prog_info info = {0};
    unsigned length = sizeof(info);
    struct bpf_object *object = open_object(path);
    struct bpf_program *program = only_program(object);
    load_object(path, object, program, UNCOUNTED);
    if (bpf_obj_get_info_by_fd(bpf_program__fd(program), &info, &length))
        fail("load", errno, NULL, "its sizes cannot be read: %s", strerror(errno));
    json_begin("program");
    json_string("name", bpf_program__name(program));
    json_known("insns", bpf_program__insn_cnt(program));
    json_known("verified_insns", info.verified_insns ? (long long)info.verified_insns : UNKNOWN);
    json_known("xlated_bytes", info.xlated_prog_len);
    json_known("jited_bytes", info.jited_prog_len ? (long long)info.jited_prog_len : UNKNOWN);
    json_known("program_bytes", charged_bytes(bpf_program__fd(program)));
    json_known("map_bytes", maps_bytes(object));
    json_end();
    bpf_object__close(object);
}

void bpf_bench(const char *object) {
    const struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_MEMLOCK, &all); // before 5.11 maps and programs are charged to it
    int interface = network_make();
    print_sizes(object);
    unsigned done = 0;
    for (; bench_next(done); done++)
        run_cycle(object, interface, done);
    for (unsigned rank = 0; rank < done; rank++) {
        json_begin("cycle");
        json_known("rank", rank);
        for (int step = 0; step < STEPS; step++)
            json_known(STEP_NAMES[step], cycles[rank][step]);
        json_end();
    }
}
