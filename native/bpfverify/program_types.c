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

// Program and attach types that the kernel's headers here may lack, by their numbers in uapi/linux/bpf.h.
enum {
    NETFILTER_PROGRAM = 32,
    KPROBE_MULTI = 42,
    NETFILTER = 45,
    TCX_INGRESS = 46,
    TCX_EGRESS = 47,
    UPROBE_MULTI = 48,
    UNIX_CONNECT = 49,
    UNIX_SENDMSG = 50,
    UNIX_RECVMSG = 51,
    UNIX_GETPEERNAME = 52,
    UNIX_GETSOCKNAME = 53,
    NETKIT_PRIMARY = 54,
    NETKIT_PEER = 55,
    KPROBE_SESSION = 56,
    UPROBE_SESSION = 57,
};

// Section names of libbpf 1.8 that an older libbpf does not know, and what the kernel is told of such a
// program. Behind a name that ends with '/' there may be anything, or that '/' is missing too.
static const struct {
    const char *name;
    struct program_kind kind;
} NEW_NAMES[] = {
    {"kprobe.multi/", {BPF_PROG_TYPE_KPROBE, KPROBE_MULTI, 0}},
    {"kretprobe.multi/", {BPF_PROG_TYPE_KPROBE, KPROBE_MULTI, 0}},
    {"kprobe.session/", {BPF_PROG_TYPE_KPROBE, KPROBE_SESSION, 0}},
    {"uprobe.s/", {BPF_PROG_TYPE_KPROBE, 0, BPF_F_SLEEPABLE}},
    {"uretprobe.s/", {BPF_PROG_TYPE_KPROBE, 0, BPF_F_SLEEPABLE}},
    {"uprobe.multi/", {BPF_PROG_TYPE_KPROBE, UPROBE_MULTI, 0}},
    {"uretprobe.multi/", {BPF_PROG_TYPE_KPROBE, UPROBE_MULTI, 0}},
    {"uprobe.multi.s/", {BPF_PROG_TYPE_KPROBE, UPROBE_MULTI, BPF_F_SLEEPABLE}},
    {"uretprobe.multi.s/", {BPF_PROG_TYPE_KPROBE, UPROBE_MULTI, BPF_F_SLEEPABLE}},
    {"uprobe.session/", {BPF_PROG_TYPE_KPROBE, UPROBE_SESSION, 0}},
    {"uprobe.session.s/", {BPF_PROG_TYPE_KPROBE, UPROBE_SESSION, BPF_F_SLEEPABLE}},
    {"usdt.s/", {BPF_PROG_TYPE_KPROBE, 0, BPF_F_SLEEPABLE}},
    {"tracepoint.s/", {BPF_PROG_TYPE_TRACEPOINT, 0, BPF_F_SLEEPABLE}},
    {"tp.s/", {BPF_PROG_TYPE_TRACEPOINT, 0, BPF_F_SLEEPABLE}},
    {"raw_tracepoint.s/", {BPF_PROG_TYPE_RAW_TRACEPOINT, 0, BPF_F_SLEEPABLE}},
    {"raw_tp.s/", {BPF_PROG_TYPE_RAW_TRACEPOINT, 0, BPF_F_SLEEPABLE}},
    {"tc/ingress", {BPF_PROG_TYPE_SCHED_CLS, TCX_INGRESS, 0}},
    {"tc/egress", {BPF_PROG_TYPE_SCHED_CLS, TCX_EGRESS, 0}},
    {"tcx/ingress", {BPF_PROG_TYPE_SCHED_CLS, TCX_INGRESS, 0}},
    {"tcx/egress", {BPF_PROG_TYPE_SCHED_CLS, TCX_EGRESS, 0}},
    {"netkit/primary", {BPF_PROG_TYPE_SCHED_CLS, NETKIT_PRIMARY, 0}},
    {"netkit/peer", {BPF_PROG_TYPE_SCHED_CLS, NETKIT_PEER, 0}},
    {"cgroup/connect_unix", {BPF_PROG_TYPE_CGROUP_SOCK_ADDR, UNIX_CONNECT, 0}},
    {"cgroup/sendmsg_unix", {BPF_PROG_TYPE_CGROUP_SOCK_ADDR, UNIX_SENDMSG, 0}},
    {"cgroup/recvmsg_unix", {BPF_PROG_TYPE_CGROUP_SOCK_ADDR, UNIX_RECVMSG, 0}},
    {"cgroup/getpeername_unix", {BPF_PROG_TYPE_CGROUP_SOCK_ADDR, UNIX_GETPEERNAME, 0}},
    {"cgroup/getsockname_unix", {BPF_PROG_TYPE_CGROUP_SOCK_ADDR, UNIX_GETSOCKNAME, 0}},
    {"netfilter", {NETFILTER_PROGRAM, NETFILTER, 0}},
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

static unsigned flags_of(unsigned type) { return type == BPF_PROG_TYPE_SYSCALL ? BPF_F_SLEEPABLE : 0; }

bool program_kind_ruled(const char *object_path, const char *section, struct program_kind *kind) {
    for (size_t i = 0; i < rule_count; i++) {
        if (!rule_is_for(rules[i].object, object_path) || fnmatch(rules[i].section, section, 0))
            continue;
        *kind = (struct program_kind){.type = rules[i].type, .flags = flags_of(rules[i].type)};
        return true;
    }
    return false;
}

// A variant behind a point is newer than those names, and the kernel must be told of it: that is no guess.
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

bool program_type_has_target(unsigned type) {
    return type == BPF_PROG_TYPE_STRUCT_OPS || type == BPF_PROG_TYPE_TRACING || type == BPF_PROG_TYPE_LSM ||
           type == BPF_PROG_TYPE_EXT;
}
