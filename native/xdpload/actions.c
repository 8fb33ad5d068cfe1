// SPDX-License-Identifier: Apache-2.0
#include "actions.h"
#include "fail.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdlib.h>
#include <string.h>

#define HAS_FRAGS (1U << 5) // BPF_F_XDP_HAS_FRAGS, since Linux 5.18

const char *const action_names[ACTIONS] = {"aborted", "drop", "pass", "tx", "redirect", "other"};

static const char *wrapped;
static int sums_fd = -1;

// All jumps and calls of a program are relative: behind these instructions it stays as it is.
static size_t write_wrapper(struct bpf_insn *to) {
    const struct bpf_insn wrapper[] = {
        {.code = BPF_JMP | BPF_CALL,
         .src_reg = BPF_PSEUDO_CALL}, // the program, as a function: imm is set below
        {.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = BPF_REG_6, .src_reg = BPF_REG_0},
        {.code = BPF_ALU | BPF_MOV | BPF_X, .dst_reg = BPF_REG_1, .src_reg = BPF_REG_0},
        {.code = BPF_JMP | BPF_JLE | BPF_K, .dst_reg = BPF_REG_1, .imm = ACTIONS - 1, .off = 1},
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_1, .imm = ACTIONS - 1},
        {.code = BPF_STX | BPF_MEM | BPF_W, .dst_reg = BPF_REG_10, .src_reg = BPF_REG_1, .off = -4},
        {.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = BPF_REG_2, .src_reg = BPF_REG_10},
        {.code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = BPF_REG_2, .imm = -4},
        {.code = BPF_LD | BPF_DW | BPF_IMM,
         .dst_reg = BPF_REG_1,
         .src_reg = BPF_PSEUDO_MAP_FD,
         .imm = sums_fd},
        {},
        {.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_map_lookup_elem},
        {.code = BPF_JMP | BPF_JEQ | BPF_K, .dst_reg = BPF_REG_0, .off = 3},
        {.code = BPF_LDX | BPF_MEM | BPF_DW, .dst_reg = BPF_REG_1, .src_reg = BPF_REG_0},
        {.code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = BPF_REG_1, .imm = 1},
        {.code = BPF_STX | BPF_MEM | BPF_DW, .dst_reg = BPF_REG_0, .src_reg = BPF_REG_1},
        {.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = BPF_REG_0, .src_reg = BPF_REG_6},
        {.code = BPF_JMP | BPF_EXIT},
    };
    size_t count = sizeof(wrapper) / sizeof(wrapper[0]);
    if (to) {
        memcpy(to, wrapper, sizeof(wrapper));
        to[0].imm = count - 1;
    }
    return count;
}

// The wrapper is one more function, of the type of the program's own; the others begin so much later.
static int move_functions(struct bpf_prog_load_opts *options, size_t by) {
    size_t record = options->func_info_rec_size, count = options->func_info_cnt;
    if (!count)
        return 0;
    char *moved = malloc((count + 1) * record); // libbpf reads it after this call: it is never freed
    if (!moved)
        return -ENOMEM;
    memcpy(moved, options->func_info, record);
    memcpy(moved + record, options->func_info, count * record);
    *(uint32_t *)moved = 0;
    for (size_t i = 1; i <= count; i++)
        *(uint32_t *)(moved + i * record) += by;
    options->func_info = moved;
    options->func_info_cnt++;
    return 0;
}

// Called by libbpf for every program of the section, when all of its addresses are known.
static int wrap(struct bpf_program *program, struct bpf_prog_load_opts *options, long has_frags) {
    if (has_frags)
        options->prog_flags |= HAS_FRAGS; // libbpf's own handler of the section is not asked any more
    if (strcmp(bpf_program__name(program), wrapped))
        return 0;
    size_t own = bpf_program__insn_cnt(program), before = write_wrapper(NULL);
    struct bpf_insn *all = calloc(own + before, sizeof(*all));
    if (!all)
        return -ENOMEM;
    write_wrapper(all);
    memcpy(all + before, bpf_program__insns(program), own * sizeof(*all));
    int error = bpf_program__set_insns(program, all, own + before);
    free(all);
    // Lines only make the verifier's log readable, and they would have to begin at the first instruction.
    options->line_info = NULL;
    options->line_info_cnt = 0;
    return error ? error : move_functions(options, before);
}

void actions_wrap(const char *section, const char *name) {
    LIBBPF_OPTS(libbpf_prog_handler_opts, handler, .prog_prepare_load_fn = wrap,
                .cookie = !strncmp(section, "xdp.frags", strlen("xdp.frags")));
    wrapped = name;
    sums_fd = bpf_map_create(BPF_MAP_TYPE_PERCPU_ARRAY, "xdplab_actions", sizeof(uint32_t), sizeof(uint64_t),
                             ACTIONS, NULL);
    if (sums_fd < 0)
        fail("map", errno, NULL, "no map for what the program decides: %s", error_words(errno));
    int registered = libbpf_register_prog_handler(section, BPF_PROG_TYPE_XDP, BPF_XDP, &handler);
    if (registered < 0)
        fail("open", -registered, NULL, "libbpf does not let section %s be handled", section);
}

int actions_read(unsigned long long sums[ACTIONS]) {
    int cpus = libbpf_num_possible_cpus();
    unsigned long long values[cpus > 0 ? cpus : 1];
    if (sums_fd < 0)
        return -ENOENT;
    for (unsigned action = 0; action < ACTIONS; action++) {
        if (bpf_map_lookup_elem(sums_fd, &action, values))
            return -errno;
        sums[action] = 0;
        for (int cpu = 0; cpu < cpus; cpu++)
            sums[action] += values[cpu];
    }
    return 0;
}
