// SPDX-License-Identifier: Apache-2.0
// The kernel's BPF programs, by bpf(2) itself: a TG needs no libbpf for them.
#include "settings.h"

#include <errno.h>
#include <linux/bpf.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { TCX_INGRESS = 46, TCX_EGRESS = 47 }; // BPF_TCX_*, since Linux 6.6

// Programs that run wherever something happens in the kernel, thus also on a frame's way.
static const char *const tracing[] = {
    [BPF_PROG_TYPE_KPROBE] = "kprobe",         [BPF_PROG_TYPE_TRACEPOINT] = "tracepoint",
    [BPF_PROG_TYPE_PERF_EVENT] = "perf_event", [BPF_PROG_TYPE_RAW_TRACEPOINT] = "raw_tracepoint",
    [BPF_PROG_TYPE_TRACING] = "tracing",
};

static int call(int command, union bpf_attr *attributes) {
    return (int)syscall(SYS_bpf, command, attributes, sizeof(*attributes));
}

static bool read_info(unsigned id, struct bpf_prog_info *info) {
    union bpf_attr program = {.prog_id = id};
    int fd = call(BPF_PROG_GET_FD_BY_ID, &program);
    if (fd < 0)
        return false; // unloaded meanwhile
    memset(info, 0, sizeof(*info));
    union bpf_attr asked = {.info = {.bpf_fd = fd, .info_len = sizeof(*info), .info = (unsigned long)info}};
    int error = call(BPF_OBJ_GET_INFO_BY_FD, &asked);
    close(fd);
    return !error;
}

static bool is_tracing(const struct bpf_prog_info *info) {
    return info->type < sizeof(tracing) / sizeof(tracing[0]) && tracing[info->type];
}

// Walks over all programs; returns 0 or an errno.
static int print_each(FILE *runs, FILE *traced) {
    union bpf_attr at = {};
    struct bpf_prog_info info;

    while (!call(BPF_PROG_GET_NEXT_ID, &at)) {
        if (read_info(at.next_id, &info)) {
            if (info.type == BPF_PROG_TYPE_XDP && info.run_cnt)
                fprintf(runs, "%u:%llu ", info.id, (unsigned long long)info.run_cnt);
            if (is_tracing(&info))
                fprintf(traced, "%s:%s ", tracing[info.type], info.name);
        }
        at.start_id = at.next_id;
    }
    return errno == ENOENT ? 0 : errno;
}

static int count_tcx(unsigned ifindex, int where) {
    unsigned ids[64];
    union bpf_attr asked = {.query = {.target_fd = ifindex, // target_ifindex
                                      .attach_type = where,
                                      .prog_ids = (unsigned long)ids,
                                      .prog_cnt = sizeof(ids) / sizeof(ids[0])}};
    return call(BPF_PROG_QUERY, &asked) ? 0 : (int)asked.query.prog_cnt; // older kernels have none
}

// Runs that the kernel counted of each XDP program, by id: it counts only while BPF statistics are on.
void print_programs(FILE *out, unsigned ifindex) {
    char *runs = NULL, *traced = NULL;
    size_t lengths[2];
    FILE *counted = open_memstream(&runs, &lengths[0]), *named = open_memstream(&traced, &lengths[1]);
    int error = counted && named ? print_each(counted, named) : ENOMEM;

    if (counted)
        fclose(counted);
    if (named)
        fclose(named);
    if (error)
        fprintf(out, "bpf.run_cnt\tabsent: %s\nbpf.tracing\tabsent: %s\n", strerror(error), strerror(error));
    else
        fprintf(out, "bpf.run_cnt\t%s\nbpf.tracing\t%s\n", runs, traced);
    fprintf(out, "port.tcx\tingress %d egress %d\n", count_tcx(ifindex, TCX_INGRESS),
            count_tcx(ifindex, TCX_EGRESS));
    free(runs);
    free(traced);
}
