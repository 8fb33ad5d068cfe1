// SPDX-License-Identifier: Apache-2.0
#include "verdict.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#ifndef ENOTSUPP
#define ENOTSUPP 524 // the kernel's own; it does reach user space
#endif

struct rule {
    int error;         // 0: any
    const char *words; // somewhere in the log; "" is a log without a complaint, NULL any
    enum verdict verdict;
    const char *cause;
};

// A helper that the kernel gives to this program type only if it is built with an option.
static const struct {
    unsigned program_type;
    const char *helper;
    const char *cause;
} CONFIGURED[] = {
    {BPF_PROG_TYPE_KPROBE, " bpf_override_return#",
     "kernel configuration (helper needs CONFIG_BPF_KPROBE_OVERRIDE)"},
    {BPF_PROG_TYPE_SCHED_CLS, " bpf_skb_get_xfrm_state#", "kernel configuration (helper needs CONFIG_XFRM)"},
    {BPF_PROG_TYPE_LWT_SEG6LOCAL, " bpf_lwt_seg6_",
     "kernel configuration (helper needs CONFIG_IPV6_SEG6_BPF)"},
};

// The first that fits decides.
static const struct rule LOAD_RULES[] = {
    {0, "BPF program is too large", COMPLEXITY, "more instructions to process than the limit"},
    {0, "jumps is too complex", COMPLEXITY, "more pending branches than the limit"},
    {E2BIG, "", COMPLEXITY, "more instructions than the kernel takes"},
    {0, "unknown#195896080", ENVIRONMENT, "a type or field this kernel does not have (CO-RE)"},
    {0, "helper bpf_probe_", ENVIRONMENT, "helper not available (lockdown takes it away)"},
    {0, "unknown func bpf_probe_", ENVIRONMENT, "helper not available (lockdown takes it away)"},
    // The same refusal, in the words of 6.8 and later and in those before: this type does not have the
    // helper.
    {0, "program of this type cannot use helper", REJECTED, "helper not available to this type"},
    {0, "unknown func bpf_", REJECTED, "helper not available to this type"},
    {0, "invalid func unknown", ENVIRONMENT, "helper not available"},
    {0, "GPL-restricted", REJECTED, "helper reserved to GPL programs"},
    {0, "kernel function call", ENVIRONMENT, "kernel function not available"},
    {0, "JIT", ENVIRONMENT, "what it uses needs the JIT"},
    {0, "kernel subsystem misconfigured", ENVIRONMENT, "kernel configuration"},
    {0, "CONFIG_", ENVIRONMENT, "kernel configuration"},
    {0, "preallocated hash map", ENVIRONMENT, "a map without preallocation"},
    {0, "is not supported", ENVIRONMENT, "not supported by this kernel"},
    {0, "attach_btf_id", ENVIRONMENT, "what it attaches to is not in this kernel"},
    {0, "is not traceable", ENVIRONMENT, "what it attaches to is not in this kernel"},
    {EPERM, NULL, ENVIRONMENT, "not permitted (lockdown, or a missing capability)"},
    {ENOMEM, NULL, ENVIRONMENT, "no memory"},
    {ENOTSUPP, NULL, ENVIRONMENT, "not supported by this kernel"},
    {EOPNOTSUPP, NULL, ENVIRONMENT, "not supported by this kernel"},
    {EAGAIN, NULL, ENVIRONMENT, "interrupted"},
    {EINTR, NULL, ENVIRONMENT, "interrupted"},
    {EINVAL, "", ENVIRONMENT, "program type or kernel version argument not accepted"},
    {EBADF, "", LOADER, "a map's descriptor is not valid"},
    {0, "arena's user address must be set", LOADER, "the loader maps no arena (libbpf 1.4 and later do)"},
    {0, "exception callback type id not found", LOADER,
     "the loader hands over no exception callback (libbpf 1.3 and later do)"},
    {0, NULL, REJECTED, "the verifier's own finding"},
};

static const struct rule WORD_RULES[] = {
    {0, "no program type", NO_TYPE, "nothing says what type it is"},
    {0, "failed to find kernel BTF", ENVIRONMENT, "what it attaches to is not in this kernel"},
    {0, "is not found in vmlinux BTF", ENVIRONMENT, "what it attaches to is not in this kernel"},
    {0, "in kernel or module BTF", ENVIRONMENT, "a kernel symbol this kernel does not have"},
    {0, "kernel doesn't support", ENVIRONMENT, "not supported by this kernel"},
    {0, "failed to create", ENVIRONMENT, "a map cannot be created"},
    {0, "cannot be created", ENVIRONMENT, "a map cannot be created"},
    {0, "Error creating", ENVIRONMENT, "a map cannot be created"},
    {0, "kconfig", ENVIRONMENT, "kernel configuration"},
    {0, "kallsyms", ENVIRONMENT, "a kernel symbol this kernel does not have"},
    {0, "attach target of --targets", LOADER, "what it attaches to cannot be loaded"},
    {0, "attach program FD is not", NO_TYPE, "what program it attaches to is not said"},
    {0, "neither prog FD nor attach target", NO_TYPE, "what it attaches to is not said"},
    {0, "attach target", NO_TYPE, "what it attaches to is not said"},
    {0, NULL, LOADER, "the loader cannot read or prepare it"},
};

// Statistics follow every verification; they are no complaint.
static bool says_nothing(const char *log) {
    return log[0] == '\0' || !strncmp(log, "verification time", 17) || !strncmp(log, "processed ", 10);
}

static bool fits(const struct rule *rule, int error, const char *text) {
    if (rule->error && rule->error != error)
        return false;
    if (!rule->words)
        return true;
    return rule->words[0] ? strstr(text, rule->words) != NULL : says_nothing(text);
}

static void judge(struct record *record, const struct rule *rule, const char *text) {
    while (!fits(rule, record->error, text))
        rule++;
    record->verdict = rule->verdict;
    record->cause = rule->cause;
}

// The refusal of a helper, in the words of 6.8 and later or in those before, from the helper's name on.
static const char *refused_helper(const char *log) {
    static const char *const REFUSALS[] = {"cannot use helper", "unknown func"};
    for (size_t i = 0; i < sizeof(REFUSALS) / sizeof(REFUSALS[0]); i++) {
        const char *at = strstr(log, REFUSALS[i]);
        if (at)
            return at + strlen(REFUSALS[i]);
    }
    return NULL;
}

// Why the kernel was built without the helper that was refused, or NULL if another cause is to be found.
static const char *lacking_option(const struct record *record) {
    const char *helper = refused_helper(record->log);
    for (size_t i = 0; helper && i < sizeof(CONFIGURED) / sizeof(CONFIGURED[0]); i++)
        if (CONFIGURED[i].program_type == record->program_type &&
            !strncmp(helper, CONFIGURED[i].helper, strlen(CONFIGURED[i].helper)))
            return CONFIGURED[i].cause;
    return NULL;
}

void judge_load(struct record *record) {
    const char *lacking = record->error ? lacking_option(record) : NULL;
    if (lacking) {
        record->verdict = ENVIRONMENT;
        record->cause = lacking;
        return;
    }
    if (record->error) {
        judge(record, LOAD_RULES, record->log);
        return;
    }
    record->verdict = ACCEPTED;
    record->cause = NULL;
}

void judge_words(struct record *record) { judge(record, WORD_RULES, record->words); }
