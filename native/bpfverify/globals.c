// SPDX-License-Identifier: Apache-2.0
#include "globals.h"
#include "rule_table.h"

#include <bpf/btf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct global {
    char object[RULE_WORD];
    char name[RULE_WORD];
    unsigned long long value; // as two's complement
    bool negative;
};

static struct global globals[MOST_RULES];
static size_t global_count;
static char complaint[512];

static const char *read_value(struct global *global, const char *text) {
    char *end = NULL;
    global->negative = text[0] == '-';
    errno = 0;
    if (global->negative)
        global->value = (unsigned long long)strtoll(text, &end, 0);
    else
        global->value = strtoull(text, &end, 0);
    return errno || !end || end == text || *end ? "the value is not an integer of 64 bits" : NULL;
}

static const char *take_rule(char *const *words) {
    struct global global = {0};
    const char *wrong = read_value(&global, words[2]);
    if (wrong)
        return wrong;
    if (global_count == MOST_RULES)
        return "there are more rules than fit";
    strcpy(global.object, words[0]);
    strcpy(global.name, words[1]);
    globals[global_count++] = global;
    return NULL;
}

const char *globals_read(const char *path) {
    return rule_table_read(path, "OBJECT-PATTERN VARIABLE INTEGER", take_rule);
}

static const char *complain(const struct global *global, const char *why) {
    snprintf(complaint, sizeof(complaint), "global variable '%s' of --globals: %s", global->name, why);
    return complaint;
}

static bool fits(const struct global *global, unsigned size) {
    if (size == sizeof(global->value))
        return true;
    unsigned bits = 8 * size;
    if (global->negative) // the bytes that are cut off must repeat the sign
        return (long long)global->value >= -(1ll << (bits - 1));
    return global->value >> bits == 0;
}

static bool is_integer(const struct btf *btf, unsigned type) {
    int plain = btf__resolve_type(btf, type);
    const struct btf_type *found = plain < 0 ? NULL : btf__type_by_id(btf, plain);
    return found && (btf_is_int(found) || btf_is_any_enum(found));
}

// Writes in the byte order of this machine, which is the object's: libbpf refuses others.
static const char *write_value(const struct global *global, struct bpf_map *map,
                               const struct btf_var_secinfo *place) {
    size_t room = 0, size = place->size;
    const void *initial = bpf_map__initial_value(map, &room);
    if ((size != 1 && size != 2 && size != 4 && size != 8) || !fits(global, size))
        return complain(global, "the value does not fit into it");
    if (!initial || place->offset > room || size > room - place->offset)
        return complain(global, "its section has no bytes for it");
    char *bytes = malloc(room);
    if (!bytes)
        return complain(global, strerror(ENOMEM));
    memcpy(bytes, initial, room);
    const char *value = (const char *)&global->value;
    if (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__)
        value += sizeof(global->value) - size;
    memcpy(bytes + place->offset, value, size);
    int error = bpf_map__set_initial_value(map, bytes, room);
    free(bytes);
    return error ? complain(global, strerror(-error)) : NULL;
}

// Sets the variable if this map's section has it.
static const char *set_in(const struct global *global, struct bpf_map *map, const struct btf *btf,
                          bool *found) {
    const struct btf_type *section = btf__type_by_id(btf, bpf_map__btf_value_type_id(map));
    if (!section || !btf_is_datasec(section))
        return NULL;
    const struct btf_var_secinfo *places = btf_var_secinfos(section);
    for (unsigned i = 0; i < btf_vlen(section); i++) {
        const struct btf_type *variable = btf__type_by_id(btf, places[i].type);
        const char *name = variable ? btf__name_by_offset(btf, variable->name_off) : NULL;
        if (!name || strcmp(name, global->name))
            continue;
        *found = true;
        return is_integer(btf, variable->type) ? write_value(global, map, &places[i])
                                               : complain(global, "it is not an integer");
    }
    return NULL;
}

static const char *set_one(const struct global *global, struct bpf_object *object) {
    const struct btf *btf = bpf_object__btf(object);
    bool found = false;
    const char *wrong = NULL;
    struct bpf_map *map;
    if (btf)
        bpf_object__for_each_map(map, object) if (!found) wrong = set_in(global, map, btf, &found);
    return found ? wrong : complain(global, "the object's BTF has no such variable");
}

const char *globals_set(struct bpf_object *object, const char *object_path) {
    const char *wrong = NULL;
    for (size_t i = 0; !wrong && i < global_count; i++)
        if (rule_is_for(globals[i].object, object_path))
            wrong = set_one(&globals[i], object);
    return wrong;
}

const char *globals_missing(const char *object_path) {
    for (size_t i = 0; i < global_count; i++)
        if (rule_is_for(globals[i].object, object_path))
            return complain(&globals[i], "variables can be set only in objects that libbpf opens");
    return NULL;
}
