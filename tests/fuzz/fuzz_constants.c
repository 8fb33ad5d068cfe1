// SPDX-License-Identifier: Apache-2.0
// xdpload: constants of an object whose BTF lies on where its variables are, what they are and how they are
// called. libbpf reads the object first and is not ours: it gets a whole one, and what it has read is
// changed.
#include "refusing.h"
#include "setup.h"

#include <bpf/btf.h>
#include <stdlib.h>
#include <string.h>

extern const char object_begin[], object_end[];
__asm__(".section .rodata\n"
        "object_begin: .incbin \"" OBJECT "\"\n"
        "object_end:\n"
        ".previous\n");

static void set(struct bpf_object *object, char *name, const char *value,
                void (*setter)(struct bpf_object *, const struct settings *)) {
    struct setting setting = {.name = name, .value = value};
    const struct settings settings = {.items = &setting, .count = 1};

    if (!setjmp(refused))
        setter(object, &settings);
}

// Type, offset and size of each variable of .rodata, from the input. Returns how much of it was used.
static size_t lie(const struct btf *btf, const uint8_t *data, size_t size) {
    int id = btf__find_by_name_kind(btf, ".rodata", BTF_KIND_DATASEC);
    const struct btf_type *section = btf__type_by_id(btf, id);
    size_t bytes = btf_vlen(section) * sizeof(struct btf_var_secinfo);

    bytes = bytes < size ? bytes : size;
    memcpy((void *)btf_var_secinfos(section), data, bytes);
    return bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char *const names[] = {"limit",  "ready",    "rates",     "sizes",
                                  "absent", "rates[1]", "sizes.low", "limit[0].x"};
    libbpf_set_print(NULL);
    struct bpf_object *object = bpf_object__open_mem(object_begin, object_end - object_begin, NULL);
    if (!object)
        abort();
    const size_t used = lie(bpf_object__btf(object), data, size);
    char *value = strndup((const char *)data + used, size - used);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        set(object, names[i], value, set_constants);
        set(object, names[i], value, resize_maps);
    }
    free(value);
    bpf_object__close(object);
    return 0;
}
