// SPDX-License-Identifier: Apache-2.0
#include "measure.h"
#include "bpf_call.h"
#include "clock.h"
#include "verdict.h"
#include "watch_load.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WHOLE_LOG_BYTES                                                                                      \
    (UINT_MAX >> 2) // the most that a kernel from 5.2 on takes; only what is written is there
#define STEPS_AND_STATISTICS 6
#define MOST_RETRIES 5 // a signal interrupts the verifier with EAGAIN

struct effort effort;

// FNV-1a over the instructions, without the descriptors that differ from load to load.
static unsigned long long hash_of(const struct bpf_insn *insns, size_t count) {
    unsigned long long hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < count; i++) {
        struct bpf_insn insn = insns[i];
        if (insn.code == (BPF_LD | BPF_IMM | BPF_DW) && insn.src_reg)
            insn.imm = 0;
        const unsigned char *bytes = (const unsigned char *)&insn;
        for (size_t at = 0; at < sizeof(insn); at++)
            hash = (hash ^ bytes[at]) * 0x100000001b3;
    }
    return hash;
}

// The log of a load ends with `verification time N usec`.
static long long verify_us_of(const char *log) {
    static const char WORDS[] = "verification time ";
    const char *last = NULL;
    for (const char *at = log; (at = strstr(at, WORDS)); at += sizeof(WORDS) - 1)
        last = at;
    return last ? strtoll(last + sizeof(WORDS) - 1, NULL, 10) : UNKNOWN;
}

static int load_once(struct record *record, union bpf_attr *attributes, unsigned int size) {
    long fd = -1;
    for (int tries = 0; tries < MOST_RETRIES; tries++) {
        record->log[0] = '\0';
        long long start = now_ns();
        fd = bpf_call(BPF_PROG_LOAD, attributes, size);
        long long end = now_ns();
        record->error = fd < 0 ? errno : 0;
        record->load_ns[record->loads] = end - start;
        if (record->error != EAGAIN)
            break;
    }
    record->verify_us[record->loads] = verify_us_of(record->log);
    record->loads++;
    return fd;
}

static int load_watched(struct record *record, union bpf_attr *attributes, unsigned int size) {
    watch_begin();
    int fd = load_once(record, attributes, size);
    watch_end(record);
    record->loads = 0;
    return fd;
}

static int load_timed(struct record *record, union bpf_attr *attributes, unsigned int size) {
    long long spent = 0;
    int fd = -1;
    while (record->loads < effort.loads && spent < effort.budget_ns) {
        if (fd >= 0)
            close(fd);
        fd = load_once(record, attributes, size);
        spent += record->load_ns[record->loads - 1];
    }
    return fd;
}

static void read_info(struct record *record, int fd) {
    struct bpf_prog_info info = {0};
    union bpf_attr attributes = {.info = {.bpf_fd = fd, .info_len = sizeof(info), .info = (uintptr_t)&info}};
    if (bpf_call(BPF_OBJ_GET_INFO_BY_FD, &attributes, sizeof(attributes)))
        return;
    record->xlated_bytes = info.xlated_prog_len;
    record->jited_bytes = info.jited_prog_len ? (long long)info.jited_prog_len : UNKNOWN;
    record->verified_insns = info.verified_insns ? (long long)info.verified_insns : UNKNOWN;
}

static void write_log(const struct record *record, const char *log) {
    char path[PATH_MAX];
    const char *name = record->name ? record->name : record->section ? record->section : "unnamed";
    int base = snprintf(path, sizeof(path), "%s/", effort.logs);
    if (base < 0 || snprintf(path + base, sizeof(path) - base, "%s.log", name) >= (int)sizeof(path) - base)
        return;
    for (char *at = path + base; *at; at++)
        if (*at == '/')
            *at = '-';
    FILE *file = fopen(path, "w");
    if (!file)
        return;
    fwrite(log, 1, strlen(log), file);
    fclose(file);
}

// One more load with a log of each step. A log that finds no place is missing, which its reader sees.
static void load_logged(const struct record *record, union bpf_attr attributes, unsigned int size) {
    char *log = mmap(NULL, WHOLE_LOG_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (log == MAP_FAILED)
        return;
    attributes.log_buf = (uintptr_t)log;
    attributes.log_size = WHOLE_LOG_BYTES;
    attributes.log_level = STEPS_AND_STATISTICS;
    long fd = bpf_call(BPF_PROG_LOAD, &attributes, size);
    if (fd >= 0)
        close((int)fd);
    write_log(record, log);
    munmap(log, WHOLE_LOG_BYTES);
}

int measure_load(struct record *record, const union bpf_attr *given, unsigned int size) {
    union bpf_attr attributes;
    memset(&attributes, 0, sizeof(attributes));
    size = size < sizeof(attributes) ? size
                                     : sizeof(attributes); // a libbpf newer than our headers has more fields
    memcpy(&attributes, given, size);
    attributes.log_buf = (uintptr_t)record->log;
    attributes.log_size = sizeof(record->log);
    attributes.log_level = effort.log_level;
    attributes.kern_version = effort.kernel_version;
    record->program_type = attributes.prog_type;
    record->insns = attributes.insn_cnt;
    record->hash = hash_of((const struct bpf_insn *)(uintptr_t)attributes.insns, attributes.insn_cnt);
    int fd = effort.watch ? load_watched(record, &attributes, size) : load_timed(record, &attributes, size);
    if (effort.logs)
        load_logged(record, attributes, size);
    if (fd >= 0)
        read_info(record, fd);
    judge_load(record);
    return fd;
}
