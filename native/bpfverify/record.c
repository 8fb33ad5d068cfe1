// SPDX-License-Identifier: Apache-2.0
#include "record.h"
#include "json.h"

#include <bpf/libbpf.h>
#include <string.h>

// Of the verifier's log only the end is handed on: the complaint and the statistics.
#define LAST_WORDS 4096

static const char *const VERDICT_NAMES[VERDICTS] = {
    [ACCEPTED] = "accepted",       [REJECTED] = "rejected", [COMPLEXITY] = "complexity",
    [ENVIRONMENT] = "environment", [NO_TYPE] = "no_type",   [LOADER] = "loader",
};

const char *verdict_name(enum verdict verdict) { return VERDICT_NAMES[verdict]; }

void record_begin(struct record *record, const char *object, const char *loader) {
    memset(record, 0, offsetof(struct record, load_ns));
    record->log[0] = record->words[0] = '\0';
    record->object = object;
    record->loader = loader;
    record->verdict = LOADER;
    record->xlated_bytes = record->jited_bytes = record->verified_insns = UNKNOWN;
    record->kmalloc_peak_bytes = record->peak_bytes = record->cgroup_peak_bytes = record->branches = UNKNOWN;
    record->kmalloc_reason = record->peak_reason = record->cgroup_reason = record->branches_reason =
        "no load of it was watched";
}

static const char *last_words(const char *log) {
    size_t length = strlen(log);
    return length > LAST_WORDS ? log + length - LAST_WORDS : log;
}

static void print_watched(struct json *json, const struct record *record) {
    json_known(json, "kmalloc_peak_bytes", record->kmalloc_peak_bytes);
    json_string(json, "kmalloc_reason", record->kmalloc_reason);
    json_known(json, "peak_bytes", record->peak_bytes);
    json_string(json, "peak_reason", record->peak_reason);
    json_known(json, "cgroup_peak_bytes", record->cgroup_peak_bytes);
    json_string(json, "cgroup_reason", record->cgroup_reason);
    json_known(json, "branches", record->branches);
    json_string(json, "branches_reason", record->branches_reason);
}

void record_print(const struct record *record) {
    struct json json;
    json_begin(&json, "program");
    json_string(&json, "object", record->object);
    json_string(&json, "section", record->section);
    json_string(&json, "name", record->name);
    json_string(&json, "loader", record->loader);
    json_string(&json, "program_type",
                record->program_type ? libbpf_bpf_prog_type_str(record->program_type) : NULL);
    json_known(&json, "insns", record->insns ? (long long)record->insns : UNKNOWN);
    if (record->insns)
        json_hex(&json, "hash", record->hash);
    else
        json_string(&json, "hash", NULL);
    json_string(&json, "verdict", verdict_name(record->verdict));
    json_string(&json, "cause", record->cause);
    json_string(&json, "error", record->error ? strerrorname_np(record->error) : NULL);
    json_integers(&json, "load_ns", record->load_ns, record->loads);
    json_integers(&json, "verify_us", record->verify_us, record->loads);
    json_known(&json, "verified_insns", record->verified_insns);
    json_known(&json, "xlated_bytes", record->xlated_bytes);
    json_known(&json, "jited_bytes", record->jited_bytes);
    print_watched(&json, record);
    json_string(&json, "words", record->words[0] ? record->words : NULL);
    json_string(&json, "log", last_words(record->log));
    json_end(&json);
}

void record_print_object(const char *object, const char *message) {
    struct json json;
    json_begin(&json, "object");
    json_string(&json, "object", object);
    json_string(&json, "verdict", verdict_name(LOADER));
    json_string(&json, "cause", message);
    json_end(&json);
}
