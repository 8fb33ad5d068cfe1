// SPDX-License-Identifier: Apache-2.0
#include "measure.h"
#include "bpf_call.h"
#include "clock.h"
#include "verdict.h"
#include "watch_load.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define STEPS_AND_STATISTICS 6
#define KEEP_BEGINNING 8 // from 6.4 on a log that is full keeps its end without this
// Where a kernel from 6.4 on says how long the whole log is; headers of before do not know it.
#define TRUE_SIZE_AT (offsetof(union bpf_attr, core_relo_rec_size) + sizeof(uint32_t))
#define MOST_RETRIES 5 // a signal interrupts the verifier with EAGAIN

struct effort effort;

union logged_load {
    union bpf_attr attributes;
    char bytes[256];
};

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

static int load_once(struct record *record, union bpf_attr *attributes, unsigned size) {
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

static int load_watched(struct record *record, union bpf_attr *attributes, unsigned size) {
    watch_begin();
    int fd = load_once(record, attributes, size);
    watch_end(record);
    record->loads = 0;
    return fd;
}

static int load_timed(struct record *record, union bpf_attr *attributes, unsigned size) {
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

static int open_log(const struct record *record, const char *ending) {
    char path[PATH_MAX];
    const char *name = record->name ? record->name : record->section ? record->section : "unnamed";
    int base = snprintf(path, sizeof(path), "%s/", effort.logs);
    if (base < 0 ||
        snprintf(path + base, sizeof(path) - base, "%s%s", name, ending) >= (int)sizeof(path) - base)
        return -1;
    for (char *at = path + base; *at; at++)
        if (*at == '/')
            *at = '-';
    return open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
}

// A page of a mapped file beyond the room of its file system cannot be allocated.
static size_t room_for(int file) {
    struct statvfs status;
    if (fstatvfs(file, &status))
        return 0;
    unsigned long long most = (unsigned long long)status.f_bavail * status.f_frsize / 10 * 9;
    return most < effort.log_bytes ? most : effort.log_bytes;
}

// The verifier writes into the file itself: a log takes its room once. Returns how many bytes of it there
// are, or UNKNOWN.
static long long log_into(int file, union logged_load load, unsigned size, unsigned level, bool *full,
                          unsigned *true_bytes) {
    size_t room = room_for(file);
    if (!room || ftruncate(file, room))
        return UNKNOWN;
    char *log = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (log == MAP_FAILED)
        return UNKNOWN;
    load.attributes.log_buf = (uintptr_t)log;
    load.attributes.log_size = room;
    load.attributes.log_level = level;
    long fd = bpf_call(BPF_PROG_LOAD, &load.attributes, size);
    if (fd >= 0)
        close((int)fd);
    size_t length = strnlen(log, room);
    munmap(log, room);
    memcpy(true_bytes, load.bytes + TRUE_SIZE_AT, sizeof(*true_bytes));
    *full = length + 1 >= room;
    return ftruncate(file, length) ? UNKNOWN : (long long)length;
}

// A log that finds no place is missing, which its reader sees.
static void load_logged(struct record *record, const union bpf_attr *attributes, unsigned size) {
    union logged_load load;
    unsigned true_bytes = 0;
    bool full = false;
    memset(&load, 0, sizeof(load));
    memcpy(&load, attributes, size);
    memset(load.bytes + TRUE_SIZE_AT, 0, sizeof(true_bytes));
    size = size < TRUE_SIZE_AT + sizeof(true_bytes) ? TRUE_SIZE_AT + sizeof(true_bytes) : size;
    int file = open_log(record, ".log");
    if (file < 0)
        return;
    record->steps_bytes = log_into(file, load, size, STEPS_AND_STATISTICS, &full, &true_bytes);
    close(file);
    if (record->steps_bytes == UNKNOWN)
        return;
    record->steps_full = full;
    record->steps_true_bytes = true_bytes ? (long long)true_bytes : UNKNOWN;
    if (!full || !true_bytes || (file = open_log(record, ".first.log")) < 0)
        return;
    record->steps_first_bytes =
        log_into(file, load, size, STEPS_AND_STATISTICS | KEEP_BEGINNING, &full, &true_bytes);
    close(file);
}

int measure_load(struct record *record, const union bpf_attr *given, unsigned size) {
    union bpf_attr attributes;
    memset(&attributes, 0, sizeof(attributes));
    size = size < sizeof(attributes) ? size
                                     : sizeof(attributes); // a libbpf newer than our headers has more fields
    memcpy(&attributes, given, size);
    attributes.log_buf = (uintptr_t)record->log;
    attributes.log_size = sizeof(record->log);
    attributes.log_level = effort.log_level;
    attributes.kern_version = effort.kernel_version;
    attributes.prog_flags |= effort.program_flags;
    record->program_type = attributes.prog_type;
    record->insns = attributes.insn_cnt;
    record->hash = hash_of((const struct bpf_insn *)(uintptr_t)attributes.insns, attributes.insn_cnt);
    int fd = effort.watch ? load_watched(record, &attributes, size) : load_timed(record, &attributes, size);
    if (effort.logs)
        load_logged(record, &attributes, size);
    if (fd >= 0)
        read_info(record, fd);
    judge_load(record);
    return fd;
}
