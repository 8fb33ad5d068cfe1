// SPDX-License-Identifier: Apache-2.0
// eBPF programs of raw instructions, run by BPF_PROG_TEST_RUN.
#include "bench.h"
#include "bpf.h"
#include "maps.h"

#include <errno.h>
#include <unistd.h>

// A program's map is the one it was given: loads of a map's descriptor name no number.
static void set_map(struct subject *subject, int map) {
    struct bpf_insn *code = (struct bpf_insn *)subject->code;
    for (size_t i = 0; i < subject->code_bytes / sizeof(*code); i++)
        if (code[i].code == (BPF_LD | BPF_IMM | BPF_DW) && code[i].src_reg == BPF_PSEUDO_MAP_FD)
            code[i].imm = map;
}

static int load(struct subject *subject) {
    subject->fd =
        bpf_load(BPF_PROG_TYPE_XDP, subject->code, subject->code_bytes, subject->words, WORDS_BYTES);
    if (subject->fd < 0)
        return blame(subject, "BPF_PROG_LOAD");
    if (bpf_sizes(subject->fd, &subject->xlated, &subject->jited))
        return blame(subject, "BPF_OBJ_GET_INFO_BY_FD");
    return 0;
}

static int open_program(struct subject *subject) {
    if (subject->number <= 0)
        return load(subject);
    int map = map_open(subject->map, subject->number, &subject->ring);
    if (map < 0)
        return blame(subject, "BPF_MAP_CREATE");
    set_map(subject, map);
    int error = load(subject);
    close(map); // the program holds it
    return error;
}

static int run(struct subject *subject, long times) {
    uint32_t result, ns;
    ring_empty(subject->ring);
    int error = bpf_repeat(subject->fd, subject->data, subject->data_bytes, times, &result, &ns);
    batch_ns = (long long)ns * times;
    subject->verdict = result;
    return error ? blame(subject, "BPF_PROG_TEST_RUN") : 0;
}

static void close_program(struct subject *subject) {
    if (subject->fd >= 0)
        close(subject->fd);
    ring_close(subject->ring);
}

const struct bench PROGRAMS = {
    .name = "programs",
    .says = "eBPF: CODE on packet DATA by BPF_PROG_TEST_RUN, with a MAP of NUMBER entries",
    .open = open_program,
    .batch = run,
    .close = close_program,
};
