// SPDX-License-Identifier: Apache-2.0
#include "record.h"
#include "json.h"

#include <bpf/libbpf.h>
#include <stdio.h>
#include <string.h>

// Of the verifier's log only the end is handed on: the complaint and the statistics.
#define LAST_WORDS 4096

static const char *const VERDICT_NAMES[VERDICTS] = {
    [ACCEPTED] = "accepted",       [REJECTED] = "rejected", [COMPLEXITY] = "complexity",
    [ENVIRONMENT] = "environment", [NO_TYPE] = "no_type",   [LOADER] = "loader",
};

const char *verdict_name(enum verdict verdict) { return VERDICT_NAMES[verdict]; }

static const char *object_compiler;

void record_compiler(const char *compiler) { object_compiler = compiler; }

void record_begin(struct record *record, const char *object, const char *loader) {
    memset(record, 0, offsetof(struct record, load_ns));
    record->log[0] = record->words[0] = '\0';
    record->object = object;
    record->loader = loader;
    record->compiler = object_compiler;
    record->verdict = LOADER;
    record->xlated_bytes = record->jited_bytes = record->verified_insns = UNKNOWN;
    record->steps_bytes = record->steps_full = UNKNOWN;
    record->steps_true_bytes = record->steps_first_bytes = UNKNOWN;
    record->kmalloc_peak_bytes = record->peak_bytes = record->cgroup_peak_bytes = record->branches = UNKNOWN;
    record->kmalloc_reason = record->peak_reason = record->cgroup_reason = record->branches_reason =
        "no load of it was watched";
}

static const char *last_words(const char *log) {
    size_t length = strlen(log);
    return length > LAST_WORDS ? log + length - LAST_WORDS : log;
}

static void print_each(const char *key, const long long *values, size_t count) {
    json_open_array(key);
    for (size_t i = 0; i < count; i++)
        json_known(NULL, values[i]);
    json_close();
}

static void print_watched(const struct record *record) {
    json_known("kmalloc_peak_bytes", record->kmalloc_peak_bytes);
    json_string("kmalloc_reason", record->kmalloc_reason);
    json_known("peak_bytes", record->peak_bytes);
    json_string("peak_reason", record->peak_reason);
    json_known("cgroup_peak_bytes", record->cgroup_peak_bytes);
    json_string("cgroup_reason", record->cgroup_reason);
    json_known("branches", record->branches);
    json_string("branches_reason", record->branches_reason);
}

static void print_steps(const struct record *record) {
    if (record->steps_bytes == UNKNOWN)
        return;
    json_open_object("steps");
    json_integer("bytes", record->steps_bytes);
    json_bool("full", record->steps_full);
    json_known("true_bytes", record->steps_true_bytes);
    json_known("first_bytes", record->steps_first_bytes);
    json_close();
}

void record_print(const struct record *record) {
    char hash[17];

    json_begin("program");
    json_string("object", record->object);
    json_string("section", record->section);
    json_string("name", record->name);
    json_string("loader", record->loader);
    json_string("compiler", record->compiler);
    json_string("program_type", record->program_type ? libbpf_bpf_prog_type_str(record->program_type) : NULL);
    json_known("insns", record->insns ? (long long)record->insns : UNKNOWN);
    snprintf(hash, sizeof(hash), "%016llx", record->hash);
    json_string("hash", record->insns ? hash : NULL);
    json_string("verdict", verdict_name(record->verdict));
    json_string("cause", record->cause);
    json_string("error", record->error ? strerrorname_np(record->error) : NULL);
    print_each("load_ns", record->load_ns, record->loads);
    print_each("verify_us", record->verify_us, record->loads);
    json_known("verified_insns", record->verified_insns);
    json_known("xlated_bytes", record->xlated_bytes);
    json_known("jited_bytes", record->jited_bytes);
    print_watched(record);
    print_steps(record);
    json_string("words", record->words[0] ? record->words : NULL);
    json_string("log", last_words(record->log));
    json_end();
}

void record_print_object(const char *object, const char *message) {
    json_begin("object");
    json_string("object", object);
    json_string("verdict", verdict_name(LOADER));
    json_string("cause", message);
    json_end();
}
