// SPDX-License-Identifier: Apache-2.0
#include "fail.h"
#include "setup.h"

#include <bpf/btf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct constant {
    struct bpf_map *map; // NULL: not found
    unsigned offset;
    unsigned bytes;
    unsigned type; // its number in the object's BTF
};

// The section (.rodata, .rodata.*) whose variables lie in this map, or NULL. libbpf calls the map of .rodata
// OBJECT.rodata.
static const char *constant_section(const struct bpf_map *map) {
    return bpf_map__is_internal(map) ? strstr(bpf_map__name(map), ".rodata") : NULL;
}

// A place is a variable's NAME, and then any of .FIELD and [INDEX].
static size_t name_length(const char *place) { return strcspn(place, ".["); }

static bool is_called(const char *name, const char *place, size_t length) {
    return name && strlen(name) == length && !strncmp(name, place, length);
}

// BTF tells which variable lies where.
static struct constant find_in_section(struct bpf_map *map, const struct btf *btf, const char *name,
                                       char *names, size_t room) {
    struct constant found = {};
    int section_id = btf__find_by_name_kind(btf, constant_section(map), BTF_KIND_DATASEC);
    if (section_id < 0)
        return found;
    const struct btf_type *section = btf__type_by_id(btf, section_id);
    const struct btf_var_secinfo *variable = btf_var_secinfos(section);
    for (int i = 0; i < btf_vlen(section); i++, variable++) {
        const struct btf_type *type = btf__type_by_id(btf, variable->type);
        const char *this_name = type ? btf__name_by_offset(btf, type->name_off) : NULL;
        if (!this_name)
            continue; // the object is damaged, or lies
        snprintf(names + strlen(names), room - strlen(names), " %s", this_name);
        if (is_called(this_name, name, name_length(name)))
            found = (struct constant){map, variable->offset, variable->size, variable->type};
    }
    return found;
}

static const struct btf_type *bare_type(const struct btf *btf, unsigned type) {
    return btf__type_by_id(btf, btf__resolve_type(btf, type));
}

// Goes to an element or a field; the rest of the path, or NULL if there is none such.
static const char *step_into(const struct btf *btf, struct constant *at, const char *path) {
    const struct btf_type *type = bare_type(btf, at->type);
    if (type && btf_is_array(type) && *path == '[') {
        char *end;
        unsigned long index = strtoul(path + 1, &end, 10);
        long long bytes = btf__resolve_size(btf, btf_array(type)->type);
        if (*end != ']' || index >= btf_array(type)->nelems || bytes < 0)
            return NULL;
        at->offset += index * bytes;
        at->type = btf_array(type)->type;
        return end + 1;
    }
    for (int i = 0; type && btf_is_composite(type) && *path == '.' && i < btf_vlen(type); i++) {
        const struct btf_member *member = btf_members(type) + i;
        size_t length = name_length(path + 1);
        if (!is_called(btf__name_by_offset(btf, member->name_off), path + 1, length) ||
            btf_member_bitfield_size(type, i))
            continue;
        at->offset += btf_member_bit_offset(type, i) / 8;
        at->type = member->type;
        return path + 1 + length;
    }
    return NULL;
}

static void list_fields(const struct btf *btf, const struct btf_type *type, char *names, size_t room) {
    for (int i = 0; i < btf_vlen(type); i++) {
        const char *name = btf__name_by_offset(btf, btf_members(type)[i].name_off);
        snprintf(names + strlen(names), room - strlen(names), " %s", name ? name : "?");
    }
}

// From a variable to the number that the place names.
static void go_to(const struct btf *btf, struct constant *at, const char *place) {
    char fields[300] = "";
    for (const char *rest = place + name_length(place), *next; *rest; rest = next)
        if (!(next = step_into(btf, at, rest)))
            fail("rodata", ENOENT, NULL, "%s: there is no %s in %.*s", place, rest, (int)(rest - place),
                 place);
    const struct btf_type *type = bare_type(btf, at->type);
    if (type && btf_is_array(type))
        fail("rodata", EINVAL, NULL, "%s is an array of %u: set it by a list, or as %s[0]", place,
             btf_array(type)->nelems, place);
    if (type && btf_is_composite(type)) {
        list_fields(btf, type, fields, sizeof(fields));
        fail("rodata", EINVAL, NULL, "%s is a struct: set its fields, as %s.FIELD; there are:%s", place,
             place, fields);
    }
    if (place[name_length(place)])
        at->bytes = btf__resolve_size(btf, at->type);
}

static struct constant find_constant(struct bpf_object *object, const char *name) {
    char names[900] = "";
    struct bpf_map *map;
    const struct btf *btf = bpf_object__btf(object);
    if (!btf)
        fail("rodata", ENOENT, NULL, "%s cannot be set: the object has no BTF (compile it with -g)", name);
    bpf_object__for_each_map(map, object) {
        if (!constant_section(map))
            continue;
        struct constant found = find_in_section(map, btf, name, names, sizeof(names));
        if (!found.map)
            continue;
        go_to(btf, &found, name);
        return found;
    }
    fail("rodata", ENOENT, NULL, "there is no constant %s; there are:%s", name, *names ? names : " none");
}

static long long parse_number(const struct setting *setting) {
    if (!strcmp(setting->value, "true") || !strcmp(setting->value, "false"))
        return setting->value[0] == 't';
    char *end;
    errno = 0;
    long long number = setting->value[0] == '-' ? strtoll(setting->value, &end, 0)
                                                : (long long)strtoull(setting->value, &end, 0);
    if (errno || *end)
        fail("rodata", EINVAL, NULL, "%s: %s is not a number", setting->name, setting->value);
    return number;
}

static void check_fits(const struct setting *setting, long long number, unsigned bytes) {
    if (bytes == 8)
        return;
    long long limit = 1LL << (8 * bytes);
    bool beyond = number < 0 && setting->value[0] != '-'; // from 2^63 on
    if (beyond || number >= limit || number < -limit / 2)
        fail("rodata", ERANGE, NULL, "%s: %s does not fit into %u bytes", setting->name, setting->value,
             bytes);
}

static void write_constant(const struct constant *constant, long long number) {
    size_t size;
    const void *values = bpf_map__initial_value(constant->map, &size);
    // BTF is the object's word on itself: the section's own size counts.
    if (!values || constant->offset > size || constant->bytes > size - constant->offset)
        fail("rodata", EINVAL, NULL,
             "the object's BTF has %u bytes at %u of %s, which has %zu: it is damaged", constant->bytes,
             constant->offset, bpf_map__name(constant->map), values ? size : 0);
    char *changed = malloc(size);
    if (!changed)
        fail("rodata", ENOMEM, NULL, "no memory for the program's constants");
    memcpy(changed, values, size);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    memcpy(changed + constant->offset, (char *)&number + 8 - constant->bytes, constant->bytes);
#else
    memcpy(changed + constant->offset, &number, constant->bytes);
#endif
    bpf_map__set_initial_value(constant->map, changed, size);
    free(changed);
}

void set_constants(struct bpf_object *object, const struct settings *settings) {
    for (size_t i = 0; i < settings->count; i++) {
        const struct setting *setting = &settings->items[i];
        struct constant constant = find_constant(object, setting->name);
        long long number = parse_number(setting);
        if (constant.bytes != 1 && constant.bytes != 2 && constant.bytes != 4 && constant.bytes != 8)
            fail("rodata", EINVAL, NULL, "%s is %u bytes long; only scalars of 1, 2, 4 or 8 bytes can be set",
                 setting->name, constant.bytes);
        check_fits(setting, number, constant.bytes);
        write_constant(&constant, number);
    }
}
