// SPDX-License-Identifier: Apache-2.0
#include "known_load.h"
#include "bpf_call.h"

#include <linux/bpf.h>
#include <stdint.h>
#include <unistd.h>

// Branches that are pending at once; each keeps a state of more than a kilobyte. The limit is 8192.
#define BRANCHES 2000

// r0 = a random number; BRANCHES times: if r0 == i goto end; end: r0 = 0; exit
static size_t write_program(struct bpf_insn *insns) {
    size_t count = 0;
    insns[count++] = (struct bpf_insn){.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_get_prandom_u32};
    for (int i = 0; i < BRANCHES; i++)
        insns[count++] =
            (struct bpf_insn){.code = BPF_JMP | BPF_JEQ | BPF_K, .off = BRANCHES - 1 - i, .imm = i + 1};
    insns[count++] = (struct bpf_insn){.code = BPF_ALU64 | BPF_MOV | BPF_K};
    insns[count++] = (struct bpf_insn){.code = BPF_JMP | BPF_EXIT};
    return count;
}

bool known_load(void) {
    struct bpf_insn insns[BRANCHES + 3];
    union bpf_attr attributes = {
        .prog_type = BPF_PROG_TYPE_SOCKET_FILTER,
        .insn_cnt = write_program(insns),
        .insns = (uintptr_t)insns,
        .license = (uintptr_t) "Apache-2.0",
    };
    long fd = bpf_call(BPF_PROG_LOAD, &attributes, sizeof(attributes));
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}
