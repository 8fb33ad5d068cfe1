// SPDX-License-Identifier: Apache-2.0
#include "bpf.h"

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int bpf(int command, union bpf_attr *attr) { return syscall(SYS_bpf, command, attr, sizeof(*attr)); }

static uint64_t pointer(const void *at) { return (uint64_t)(uintptr_t)at; }

int bpf_load(enum bpf_prog_type type, const void *code, size_t bytes, char *log, size_t log_bytes) {
    union bpf_attr attr = {
        .prog_type = type,
        .insns = pointer(code),
        .insn_cnt = bytes / sizeof(struct bpf_insn),
        .license = pointer("Dual BSD/GPL"),
    };
    int fd = bpf(BPF_PROG_LOAD, &attr);
    if (fd >= 0 || !log)
        return fd;
    attr.log_level = 1; // only now: writing the log costs more than loading
    attr.log_buf = pointer(log);
    attr.log_size = log_bytes;
    return bpf(BPF_PROG_LOAD, &attr);
}

int bpf_set(int map, const void *key, const void *value) {
    union bpf_attr attr = {.map_fd = map, .key = pointer(key), .value = pointer(value)};
    return bpf(BPF_MAP_UPDATE_ELEM, &attr);
}

int bpf_map(enum bpf_map_type type, uint32_t key_bytes, uint32_t value_bytes, uint32_t entries,
            uint32_t flags) {
    union bpf_attr attr = {.map_type = type,
                           .key_size = key_bytes,
                           .value_size = value_bytes,
                           .max_entries = entries,
                           .map_flags = flags};
    return bpf(BPF_MAP_CREATE, &attr);
}

int bpf_repeat(int program, const void *packet, size_t bytes, uint32_t times, uint32_t *result,
               uint32_t *ns) {
    union bpf_attr attr = {0};
    attr.test.prog_fd = program;
    attr.test.data_in = pointer(packet);
    attr.test.data_size_in = bytes;
    attr.test.repeat = times;
    int error = bpf(BPF_PROG_TEST_RUN, &attr);
    *result = attr.test.retval;
    *ns = attr.test.duration;
    return error;
}

int bpf_sizes(int program, long long *xlated, long long *jited) {
    struct bpf_prog_info info = {0};
    union bpf_attr attr = {0};
    attr.info.bpf_fd = program;
    attr.info.info_len = sizeof(info);
    attr.info.info = pointer(&info);
    int error = bpf(BPF_OBJ_GET_INFO_BY_FD, &attr);
    *xlated = info.xlated_prog_len;
    *jited = info.jited_prog_len;
    return error;
}

int bpf_compiles(void) {
    const struct bpf_insn nothing[] = {{.code = BPF_ALU64 | BPF_MOV | BPF_K}, {.code = BPF_JMP | BPF_EXIT}};
    int program = bpf_load(BPF_PROG_TYPE_SOCKET_FILTER, nothing, sizeof(nothing), NULL, 0);
    if (program < 0)
        return -1;
    long long xlated, jited;
    int error = bpf_sizes(program, &xlated, &jited);
    close(program);
    return error ? -1 : jited > 0;
}
