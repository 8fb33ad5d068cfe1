// SPDX-License-Identifier: Apache-2.0
#include "tables.h"
#include "fail.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HAS_FRAGS (1U << 5) // BPF_F_XDP_HAS_FRAGS, since Linux 5.18
#define WORD 64

// ---- an entry: KEY=VALUE, or KEY=FIELD=VALUE,FIELD=VALUE ----

struct entry {
    unsigned key;
    char number[WORD]; // `device` of a devmap, `qsize` of a cpumap: "" if not given
    char program[WORD];
};

// Kinds of maps that have programs, devices or CPUs: what the field beside `program` is called (NULL: none),
// and for what the kernel wants their programs to be loaded (0: for what the measured one is).
static const struct kind {
    enum bpf_map_type type;
    const char *number;
    unsigned attach_type;
} KINDS[] = {
    {BPF_MAP_TYPE_PROG_ARRAY, NULL, 0},
    {BPF_MAP_TYPE_DEVMAP, "device", BPF_XDP_DEVMAP},
    {BPF_MAP_TYPE_DEVMAP_HASH, "device", BPF_XDP_DEVMAP},
    {BPF_MAP_TYPE_CPUMAP, "qsize", BPF_XDP_CPUMAP},
};

static const struct kind *kind_of(const struct bpf_map *map) {
    for (size_t i = 0; i < sizeof(KINDS) / sizeof(KINDS[0]); i++)
        if (map && KINDS[i].type == bpf_map__type(map))
            return &KINDS[i];
    return NULL;
}

static bool read_field(const struct kind *kind, const char *field, const char *value, struct entry *entry) {
    bool named = *field, program = named ? !strcmp(field, "program") : !kind->number;
    if (named && !program && (!kind->number || strcmp(field, kind->number)))
        return false;
    snprintf(program ? entry->program : entry->number, WORD, "%s", value);
    return true;
}

static bool read_entry(const struct kind *kind, const char *text, struct entry *entry) {
    char copy[4 * WORD], *rest = copy, *end, *field;
    *entry = (struct entry){};
    if (!kind || snprintf(copy, sizeof(copy), "%s", text) >= (int)sizeof(copy))
        return false;
    entry->key = strtoul(copy, &end, 0);
    if (end == copy || *end != '=')
        return false;
    for (rest = end + 1; (field = strsep(&rest, ","));) {
        char *equals = strchr(field, '=');
        if (equals)
            *equals = '\0';
        if (!read_field(kind, equals ? field : "", equals ? equals + 1 : field, entry))
            return false;
    }
    return !kind->number || *entry->number;
}

static const char *forms(const struct kind *kind) {
    if (!kind)
        return "only maps of programs, devices and CPUs are filled so: prog_array, devmap, devmap_hash, "
               "cpumap";
    return kind->number ? kind->attach_type == BPF_XDP_DEVMAP
                              ? "write KEY: DEVICE, or KEY: {device: DEVICE, program: FUNCTION}"
                              : "write KEY: QSIZE, or KEY: {qsize: QSIZE, program: FUNCTION}"
                        : "write KEY: FUNCTION";
}

// ---- before the object is loaded ----

void take_program(struct bpf_program *program, enum bpf_prog_type type, unsigned attach_type, bool forced) {
    enum bpf_prog_type written = bpf_program__type(program);
    if (written != BPF_PROG_TYPE_UNSPEC && written != type)
        fail("open", EINVAL, NULL, "%s, in section %s, is no %s program: its section is one of type %s",
             bpf_program__name(program), bpf_program__section_name(program),
             type == BPF_PROG_TYPE_XDP ? "XDP" : "tc", libbpf_bpf_prog_type_str(written));
    bpf_program__set_autoload(program, true);
    bpf_program__set_type(program, type);
    if (forced || !bpf_program__expected_attach_type(program))
        bpf_program__set_expected_attach_type(program, attach_type);
}

static struct bpf_program *find_program(const struct program *program, const char *name) {
    char names[512] = "";
    struct bpf_program *other = bpf_object__find_program_by_name(program->object, name);
    if (other)
        return other;
    bpf_object__for_each_program(other, program->object)
        snprintf(names + strlen(names), sizeof(names) - strlen(names), " %s", bpf_program__name(other));
    fail("open", ENOENT, NULL, "there is no program %s; there are:%s", name, names);
}

// The kernel lets a program call or hand frames to those only that take fragments as it does.
static void take_companion(const struct program *program, const char *name, unsigned attach_type) {
    struct bpf_program *other = find_program(program, name);
    bool untyped = bpf_program__type(other) == BPF_PROG_TYPE_UNSPEC;
    if (other == program->handle)
        return;
    take_program(other, attach_type ? BPF_PROG_TYPE_XDP : program->type,
                 attach_type ? attach_type : attach_type_of(program->type), attach_type);
    if (untyped && !strncmp(bpf_program__section_name(program->handle), "xdp.frags", strlen("xdp.frags")))
        bpf_program__set_flags(other, bpf_program__flags(other) | HAS_FRAGS);
}

void take_companions(const struct program *program, const struct options *options) {
    for (size_t i = 0; i < options->also.count; i++)
        take_companion(program, options->also.items[i].name, 0);
    for (size_t i = 0; i < options->map.count; i++) {
        const struct setting *one = &options->map.items[i];
        const struct bpf_map *map = bpf_object__find_map_by_name(program->object, one->name);
        const struct kind *kind = kind_of(map);
        struct entry entry;
        if (!map)
            fail("map", ENOENT, NULL, "there is no map %s", one->name);
        if (!read_entry(kind, one->value, &entry))
            fail("map", EINVAL, NULL, "%s (%s): %s is no entry: %s", one->name,
                 libbpf_bpf_map_type_str(bpf_map__type(map)), one->value, forms(kind));
        if (*entry.program)
            take_companion(program, entry.program, kind->attach_type);
    }
}

// ---- once it is loaded, and its devices are there ----

// A device by its name; other numbers as they are. False for a device that is not there.
static bool number_of(const struct kind *kind, const char *word, unsigned *number) {
    char *end;
    *number = kind->attach_type == BPF_XDP_DEVMAP ? if_nametoindex(word) : 0;
    if (*number)
        return true;
    *number = strtoul(word, &end, 0);
    return !*end && *number;
}

static int set_entry(const struct bpf_map *map, const struct kind *kind, const struct entry *entry,
                     int program) {
    unsigned value[2] = {0, program}; // struct bpf_devmap_val, struct bpf_cpumap_val
    if (!kind->number)
        value[0] = program;
    else if (!number_of(kind, entry->number, &value[0]))
        return -ENODEV;
    if (kind->number && *entry->program && bpf_map__value_size(map) < sizeof(value))
        return -EMSGSIZE;
    return bpf_map_update_elem(bpf_map__fd(map), &entry->key, value, BPF_ANY) ? -errno : 0;
}

bool fill_tables(const struct program *program, const struct settings *entries) {
    for (size_t i = 0; i < entries->count; i++) {
        const struct setting *one = &entries->items[i];
        const struct bpf_map *map = bpf_object__find_map_by_name(program->object, one->name);
        const struct kind *kind = kind_of(map);
        struct entry entry;
        if (!read_entry(kind, one->value, &entry)) // `take_companions` has read it
            continue;
        const struct bpf_program *own =
            *entry.program ? bpf_object__find_program_by_name(program->object, entry.program) : NULL;
        int error = set_entry(map, kind, &entry, own ? bpf_program__fd(own) : 0);
        if (error) {
            complain("map", -error, "%s: entry %s is refused: %s", one->name, one->value,
                     error == -ENODEV ? "there is no such device, or it is 0"
                     : error == -EMSGSIZE
                         ? "the map's values have no room for a program (value: struct bpf_devmap_val)"
                         : error_words(-error));
            return false;
        }
    }
    return true;
}
