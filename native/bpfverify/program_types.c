// SPDX-License-Identifier: Apache-2.0
#include "program_types.h"
#include "rule_table.h"

#include <bpf/libbpf.h>
#include <fnmatch.h>
#include <linux/bpf.h>
#include <string.h>

#define MOST_TYPES 64

struct rule {
    char object[RULE_WORD];
    char section[RULE_WORD];
    enum bpf_prog_type type;
};

static struct rule rules[MOST_RULES];
static size_t rule_count;

// Section names of before libbpf 1.0, by how they begin. The longer of two that fit stands first.
static const struct {
    const char *prefix;
    enum bpf_prog_type type;
} OLD_NAMES[] = {
    {"kprobe", BPF_PROG_TYPE_KPROBE},
    {"kretprobe", BPF_PROG_TYPE_KPROBE},
    {"uprobe", BPF_PROG_TYPE_KPROBE},
    {"uretprobe", BPF_PROG_TYPE_KPROBE},
    {"tracepoint/", BPF_PROG_TYPE_TRACEPOINT},
    {"raw_tracepoint/", BPF_PROG_TYPE_RAW_TRACEPOINT},
    {"perf_event", BPF_PROG_TYPE_PERF_EVENT},
    {"xdp", BPF_PROG_TYPE_XDP},
    {"classifier", BPF_PROG_TYPE_SCHED_CLS},
    {"tc", BPF_PROG_TYPE_SCHED_CLS},
    {"action", BPF_PROG_TYPE_SCHED_ACT},
    {"socket", BPF_PROG_TYPE_SOCKET_FILTER},
    {"sockops", BPF_PROG_TYPE_SOCK_OPS},
    {"sk_skb", BPF_PROG_TYPE_SK_SKB},
    {"sk_msg", BPF_PROG_TYPE_SK_MSG},
    {"sk_reuseport", BPF_PROG_TYPE_SK_REUSEPORT},
    {"cgroup/skb", BPF_PROG_TYPE_CGROUP_SKB},
    {"cgroup/sock", BPF_PROG_TYPE_CGROUP_SOCK},
    {"cgroup/dev", BPF_PROG_TYPE_CGROUP_DEVICE},
    {"lwt_in", BPF_PROG_TYPE_LWT_IN},
    {"lwt_out", BPF_PROG_TYPE_LWT_OUT},
    {"lwt_xmit", BPF_PROG_TYPE_LWT_XMIT},
    {"lwt_seg6local", BPF_PROG_TYPE_LWT_SEG6LOCAL},
    {"flow_dissector", BPF_PROG_TYPE_FLOW_DISSECTOR},
    {"lirc_mode2", BPF_PROG_TYPE_LIRC_MODE2},
};

// Section names that are newer than a libbpf here may be, with what the kernel is told of such a program:
// without it, it would verify another one. Source: the names of libbpf 1.8, the numbers of the kernel's
// uapi/linux/bpf.h. A name that ends with '/' has anything behind it, or nothing.
static const struct {
    const char *name;
    struct program_kind kind;
} NEW_NAMES[] = {
    {"kprobe.multi/", {BPF_PROG_TYPE_KPROBE, 42, 0}},
    {"kretprobe.multi/", {BPF_PROG_TYPE_KPROBE, 42, 0}},
    {"kprobe.session/", {BPF_PROG_TYPE_KPROBE, 56, 0}},
    {"uprobe.s/", {BPF_PROG_TYPE_KPROBE, 0, BPF_F_SLEEPABLE}},
    {"uretprobe.s/", {BPF_PROG_TYPE_KPROBE, 0, BPF_F_SLEEPABLE}},
    {"uprobe.multi/", {BPF_PROG_TYPE_KPROBE, 48, 0}},
    {"uretprobe.multi/", {BPF_PROG_TYPE_KPROBE, 48, 0}},
    {"uprobe.multi.s/", {BPF_PROG_TYPE_KPROBE, 48, BPF_F_SLEEPABLE}},
    {"uretprobe.multi.s/", {BPF_PROG_TYPE_KPROBE, 48, BPF_F_SLEEPABLE}},
    {"uprobe.session/", {BPF_PROG_TYPE_KPROBE, 57, 0}},
    {"uprobe.session.s/", {BPF_PROG_TYPE_KPROBE, 57, BPF_F_SLEEPABLE}},
    {"usdt.s/", {BPF_PROG_TYPE_KPROBE, 0, BPF_F_SLEEPABLE}},
    {"tracepoint.s/", {BPF_PROG_TYPE_TRACEPOINT, 0, BPF_F_SLEEPABLE}},
    {"tp.s/", {BPF_PROG_TYPE_TRACEPOINT, 0, BPF_F_SLEEPABLE}},
    {"raw_tracepoint.s/", {BPF_PROG_TYPE_RAW_TRACEPOINT, 0, BPF_F_SLEEPABLE}},
    {"raw_tp.s/", {BPF_PROG_TYPE_RAW_TRACEPOINT, 0, BPF_F_SLEEPABLE}},
    {"tc/ingress", {BPF_PROG_TYPE_SCHED_CLS, 46, 0}},
    {"tc/egress", {BPF_PROG_TYPE_SCHED_CLS, 47, 0}},
    {"tcx/ingress", {BPF_PROG_TYPE_SCHED_CLS, 46, 0}},
    {"tcx/egress", {BPF_PROG_TYPE_SCHED_CLS, 47, 0}},
    {"netkit/primary", {BPF_PROG_TYPE_SCHED_CLS, 54, 0}},
    {"netkit/peer", {BPF_PROG_TYPE_SCHED_CLS, 55, 0}},
    {"cgroup/connect_unix", {BPF_PROG_TYPE_CGROUP_SOCK_ADDR, 49, 0}},
    {"cgroup/sendmsg_unix", {BPF_PROG_TYPE_CGROUP_SOCK_ADDR, 50, 0}},
    {"cgroup/recvmsg_unix", {BPF_PROG_TYPE_CGROUP_SOCK_ADDR, 51, 0}},
    {"cgroup/getpeername_unix", {BPF_PROG_TYPE_CGROUP_SOCK_ADDR, 52, 0}},
    {"cgroup/getsockname_unix", {BPF_PROG_TYPE_CGROUP_SOCK_ADDR, 53, 0}},
    {"netfilter", {32, 45, 0}},
};

static enum bpf_prog_type type_named(const char *name) {
    for (int type = 1; type < MOST_TYPES; type++) {
        const char *known = libbpf_bpf_prog_type_str(type);
        if (known && !strcmp(known, name))
            return type;
    }
    return BPF_PROG_TYPE_UNSPEC;
}

static const char *take_rule(char *const *words) {
    struct rule rule = {.type = type_named(words[2])};
    if (!rule.type)
        return "libbpf knows no program type of that name";
    if (rule_count == MOST_RULES)
        return "there are more rules than fit";
    strcpy(rule.object, words[0]);
    strcpy(rule.section, words[1]);
    rules[rule_count++] = rule;
    return NULL;
}

const char *program_types_read(const char *path) {
    return rule_table_read(path, "OBJECT-PATTERN SECTION-PATTERN TYPE", take_rule);
}

static unsigned int flags_of(unsigned int type) {
    return type == BPF_PROG_TYPE_SYSCALL ? BPF_F_SLEEPABLE : 0;
}

bool program_kind_ruled(const char *object_path, const char *section, struct program_kind *kind) {
    for (size_t i = 0; i < rule_count; i++) {
        if (!rule_is_for(rules[i].object, object_path) || fnmatch(rules[i].section, section, 0))
            continue;
        *kind = (struct program_kind){.type = rules[i].type, .flags = flags_of(rules[i].type)};
        return true;
    }
    return false;
}

// A variant behind a point, as in kprobe.session, is newer than those names: the kernel must be told of it,
// so it is left to a libbpf that knows it.
static bool is_named_as(const char *section, const char *prefix) {
    size_t length = strlen(prefix);
    return !strncmp(section, prefix, length) && section[length] != '.';
}

static bool is_new_name(const char *section, const char *name) {
    size_t length = strlen(name);
    if (name[length - 1] != '/')
        return !strcmp(section, name);
    return !strncmp(section, name, length) ||
           (strlen(section) == length - 1 && !strncmp(section, name, length - 1));
}

struct program_kind program_kind_of(const char *object_path, const char *section) {
    struct program_kind kind = {0};
    enum bpf_prog_type type;
    enum bpf_attach_type attach;
    if (program_kind_ruled(object_path, section, &kind))
        return kind;
    if (!libbpf_prog_type_by_name(section, &type, &attach))
        return (struct program_kind){.type = type, .attach = attach, .flags = flags_of(type)};
    for (size_t i = 0; i < sizeof(NEW_NAMES) / sizeof(NEW_NAMES[0]); i++)
        if (is_new_name(section, NEW_NAMES[i].name))
            return NEW_NAMES[i].kind;
    for (size_t i = 0; i < sizeof(OLD_NAMES) / sizeof(OLD_NAMES[0]); i++)
        if (is_named_as(section, OLD_NAMES[i].prefix))
            return (struct program_kind){.type = OLD_NAMES[i].type};
    return kind;
}

bool program_type_has_target(unsigned int type) {
    return type == BPF_PROG_TYPE_STRUCT_OPS || type == BPF_PROG_TYPE_TRACING || type == BPF_PROG_TYPE_LSM ||
           type == BPF_PROG_TYPE_EXT;
}
