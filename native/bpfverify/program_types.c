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

bool program_kind_ruled(const char *object_path, const char *section, struct program_kind *kind) {
    for (size_t i = 0; i < rule_count; i++) {
        if (!rule_is_for(rules[i].object, object_path) || fnmatch(rules[i].section, section, 0))
            continue;
        *kind = (struct program_kind){.type = rules[i].type};
        return true;
    }
    return false;
}

struct program_kind program_kind_of(const char *object_path, const char *section) {
    struct program_kind kind = {0};
    enum bpf_prog_type type;
    enum bpf_attach_type attach;
    if (program_kind_ruled(object_path, section, &kind))
        return kind;
    if (!libbpf_prog_type_by_name(section, &type, &attach))
        return (struct program_kind){.type = type, .attach = attach};
    for (size_t i = 0; i < sizeof(OLD_NAMES) / sizeof(OLD_NAMES[0]); i++)
        if (!strncmp(section, OLD_NAMES[i].prefix, strlen(OLD_NAMES[i].prefix)))
            return (struct program_kind){.type = OLD_NAMES[i].type};
    return kind;
}
