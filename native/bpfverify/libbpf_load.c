// SPDX-License-Identifier: Apache-2.0
// A BPF_PROG_LOAD that libbpf prepared passes bpf_call_seen() and is made by measure_load(): once or many
// times, timed or watched. libbpf is told that it succeeded, so one program's refusal does not end the
// object; it is opened once, not once per program. Feature probes of libbpf are known by their log: it is not
// one of ours.
#include "libbpf_load.h"
#include "bpf_call.h"
#include "globals.h"
#include "map_entries.h"
#include "measure.h"
#include "object_mend.h"
#include "program_types.h"
#include "record.h"
#include "refusal.h"
#include "targets.h"
#include "verdict.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_IN_VAIN 3
#define LOG_TAG_BYTES 128 // libbpf wants a log buffer to know the program by

struct slot { // one program of the object being loaded
    struct bpf_program *program;
    char log[LOG_TAG_BYTES];
    bool done;
};

static struct slot *slots;
static size_t slot_count;
static struct record record;
static const char *object_path;
static bool mended;               // is the object a copy that libbpf takes
static const char *globals_wrong; // why the object's variables could not be set, or NULL

static struct slot *slot_of(const union bpf_attr *attributes) {
    for (size_t i = 0; i < slot_count; i++)
        if (attributes->log_buf == (uintptr_t)slots[i].log)
            return &slots[i];
    return NULL;
}

static void begin_record(const struct bpf_program *program) {
    record_begin(&record, object_path, "libbpf");
    record.section = bpf_program__section_name(program);
    record.name = bpf_program__name(program);
    record.program_type = bpf_program__type(program);
}

static void print_words(struct slot *slot, const char *text) {
    begin_record(slot->program);
    snprintf(record.words, sizeof(record.words), "%s", text);
    judge_words(&record);
    record_print(&record);
    slot->done = true;
}

// libbpf before 1.2 does not read .struct_ops.link, so it finds no member that the program implements.
static bool lacks_place(const union bpf_attr *attributes) {
    return attributes->prog_type == BPF_PROG_TYPE_STRUCT_OPS && !attributes->attach_btf_id;
}

static long load_prepared(struct slot *slot, const union bpf_attr *attributes, unsigned size) {
    begin_record(slot->program);
    int fd = measure_load(&record, attributes, size);
    record_print(&record);
    slot->done = true;
    return fd >= 0 ? fd : open("/dev/null", O_RDONLY | O_CLOEXEC);
}

long bpf_call_seen(int command, const union bpf_attr *attributes, unsigned size) {
    struct slot *slot = command == BPF_PROG_LOAD ? slot_of(attributes) : NULL;
    if (slot && !slot->done && lacks_place(attributes)) {
        print_words(slot, "libbpf found no struct_ops map that it belongs to");
        return open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
    if (slot && !slot->done)
        return load_prepared(slot, attributes, size);
    return bpf_call(command, attributes, size);
}

// What its owner would set before loading: nothing is pinned, and no map is without entries.
static void prepare_maps(struct bpf_object *object) {
    struct bpf_map *map;
    bpf_object__for_each_map(map, object) {
        unsigned wanted = bpf_map__max_entries(map), entries = map_entries(bpf_map__type(map), wanted);
        bpf_map__set_pin_path(map, NULL);
        if (entries != wanted)
            bpf_map__set_max_entries(map, entries);
    }
}

static bool find_kind(struct bpf_program *program) {
    struct program_kind kind = {0};
    const char *section = bpf_program__section_name(program);
    bool ruled = program_kind_ruled(object_path, section, &kind);
    if (!ruled && bpf_program__type(program))
        return true;
    if (!ruled)
        kind = program_kind_of(object_path, section);
    if (!kind.type)
        return false;
    bpf_program__set_type(program, kind.type);
    bpf_program__set_expected_attach_type(program, kind.attach);
    bpf_program__set_flags(program, bpf_program__flags(program) | kind.flags);
    return true;
}

// All programs of an object, or the one at `only`. A program without a type is told of and left out.
static void prepare_programs(struct bpf_object *object, long only) {
    struct bpf_program *program;
    long rank = 0;
    bpf_object__for_each_program(program, object) {
        struct slot *slot = &slots[rank];
        slot->program = program;
        bpf_program__set_log_buf(program, slot->log, sizeof(slot->log));
        bpf_program__set_log_level(program, effort.log_level);
        bool wanted = !slot->done && (only < 0 || only == rank);
        if (wanted && !find_kind(program)) {
            char words[256];
            snprintf(words, sizeof(words), NO_TYPE_WORDS, bpf_program__section_name(program),
                     libbpf_version_string());
            print_words(slot, words);
            wanted = false;
        }
        const char *wrong = wanted ? targets_set(program, object_path) : NULL;
        if (wrong) {
            print_words(slot, wrong);
            wanted = false;
        }
        bpf_program__set_autoload(program, wanted);
        rank++;
    }
}

static struct bpf_object *open_object(const void *bytes, size_t size) {
    refusal_forget();
    LIBBPF_OPTS(bpf_object_open_opts, options, .object_name = "bpfverify", .relaxed_maps = mended);
    struct bpf_object *object = bpf_object__open_mem(bytes, size, &options);
    if (!object)
        return NULL;
    prepare_maps(object);
    globals_wrong = globals_set(object, object_path);
    return object;
}

static size_t count_programs(struct bpf_object *object) {
    struct bpf_program *program;
    size_t count = 0;
    bpf_object__for_each_program(program, object) count++;
    return count;
}

// What its own preparation stopped is told with libbpf's words.
static void load_alone(const void *bytes, size_t size, long rank) {
    struct bpf_object *object = open_object(bytes, size);
    if (!object) {
        record_print_object(object_path, refusal_words());
        return;
    }
    prepare_programs(object, rank);
    if (!slots[rank].done) {
        int error = bpf_object__load(object);
        if (!slots[rank].done)
            print_words(&slots[rank], *refusal_words() ? refusal_words() : strerror(-error));
    }
    bpf_object__close(object);
}

static size_t count_left(void) {
    size_t left = 0;
    for (size_t i = 0; i < slot_count; i++)
        left += !slots[i].done;
    return left;
}

static void load_together(struct bpf_object *object) {
    prepare_programs(object, -1);
    bpf_object__load(object);
    bpf_object__close(object);
}

// Returns whether it came to any of those that are left.
static bool load_left(const void *bytes, size_t size) {
    size_t before = count_left();
    struct bpf_object *object = before ? open_object(bytes, size) : NULL;
    if (object)
        load_together(object);
    return count_left() < before;
}

// libbpf stops at the first program it cannot prepare: that one is told of by itself, and the others are
// loaded together again, unless that has led nowhere for a while. To open an object costs more than to load
// it: libbpf reads the kernel's whole BTF each time.
static void load_behind_what_stops(const void *bytes, size_t size) {
    int in_vain = 0;
    for (size_t i = 0; i < slot_count; i++) {
        if (slots[i].done)
            continue;
        load_alone(bytes, size, i);
        if (in_vain < MOST_IN_VAIN)
            in_vain = load_left(bytes, size) ? 0 : in_vain + 1;
    }
}

static const char *load_all(struct bpf_object *object, const void *bytes, size_t size) {
    if (globals_wrong) {
        record_print_object(object_path, globals_wrong);
        bpf_object__close(object);
        return NULL;
    }
    slot_count = count_programs(object);
    slots = calloc(slot_count + 1, sizeof(*slots));
    if (!slots)
        abort();
    load_together(object);
    load_behind_what_stops(bytes, size);
    free(slots);
    bool none = slot_count == 0;
    slot_count = 0;
    return none ? "it holds no program" : NULL;
}

static bool can_be_mended(const char *words) {
    return strstr(words, "is static and not supported") || strstr(words, "invalid pinning value");
}

const char *libbpf_load(const char *path, const void *bytes, size_t size) {
    void *copy = NULL;
    object_path = path;
    mended = false;
    struct bpf_object *object = open_object(bytes, size);
    if (!object && can_be_mended(refusal_words()) && (copy = object_mend(bytes, size))) {
        mended = true;
        object = open_object(copy, size);
    }
    const char *refused = *refusal_words() ? refusal_words() : strerror(errno);
    if (object)
        refused = load_all(object, mended ? copy : bytes, size);
    free(copy);
    return refused;
}
