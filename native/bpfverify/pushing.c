// SPDX-License-Identifier: Apache-2.0
#include "pushing.h"

#include <bpf/btf.h>
#include <stdio.h>
#include <string.h>

#define FUNCTION "push_stack"
#define ELEMENT "bpf_verifier_stack_elem"

// Symbols are in no order: what follows is the lowest address above its own.
static const char *find_code(struct pushing *pushing) {
    char line[512], name[256];
    unsigned long long address;
    FILE *symbols = fopen("/proc/kallsyms", "r");
    if (!symbols)
        return "/proc/kallsyms cannot be read";
    while (!pushing->begin && fgets(line, sizeof(line), symbols))
        if (sscanf(line, "%llx %*c %255s", &address, name) == 2 && !strcmp(name, FUNCTION))
            pushing->begin = address;
    rewind(symbols);
    while (pushing->begin && fgets(line, sizeof(line), symbols))
        if (sscanf(line, "%llx", &address) == 1 && address > pushing->begin &&
            (!pushing->end || address < pushing->end))
            pushing->end = address;
    fclose(symbols);
    return pushing->end ? NULL : "the compiler inlined it, or the kernel hides its address";
}

static const char *find_element(struct pushing *pushing) {
    struct btf *btf = btf__load_vmlinux_btf();
    const struct btf_type *type = NULL;
    if (!btf)
        return "the kernel has no BTF, which tells the size of " ELEMENT;
    int id = btf__find_by_name_kind(btf, ELEMENT, BTF_KIND_STRUCT);
    if (id > 0)
        type = btf__type_by_id(btf, id);
    pushing->element_bytes = type ? type->size : 0;
    btf__free(btf);
    return pushing->element_bytes ? NULL : "the kernel's BTF has no " ELEMENT;
}

const char *pushing_find(struct pushing *pushing) {
    memset(pushing, 0, sizeof(*pushing));
    const char *wrong = find_code(pushing);
    return wrong ? wrong : find_element(pushing);
}
