// SPDX-License-Identifier: Apache-2.0
// The benchmark as a function of a shared object in this process.
#include "backend.h"
#include "fail.h"
#include "options.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void *library, *set;
static unsigned char frame[FRAME_BYTES];
static void (*function)(struct bench_record *record, void *set, void *frame);

static void *symbol(const char *name) {
    void *found = dlsym(library, name);

    if (!found)
        fail("user", 0, NULL, "%s: %s", options.object, dlerror());
    return found;
}

static struct image user_load(void) {
    size_t bytes;

    library = dlopen(options.object, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        fail("user", 0, NULL, "%s", dlerror());
    function = symbol("microbench");
    bytes = *(const unsigned long *)symbol("microbench_bytes");
    set = calloc(1, bytes);
    if (!set || state_bytes > bytes)
        fail("user", set ? E2BIG : errno, NULL, "%s: no working set of %zu bytes: %s", options.object, bytes,
             strerror(set ? E2BIG : errno));
    memset(set, 0, bytes); // every page is there before the first call
    memcpy(set, state, state_bytes);
    return (struct image){};
}

// The frame is written right before each call, as BPF_PROG_TEST_RUN does it: it is never cold.
static void user_call(struct bench_record *record) {
    for (int i = 0; i < FRAME_BYTES; i++)
        frame[i] = i;
    function(record, set, frame);
}

static void user_unload(void) {
    free(set);
    dlclose(library);
}

static int print_segments(struct dl_phdr_info *info, size_t size, void *base) {
    (void)size;
    for (int i = 0; info->dlpi_addr == (uintptr_t)base && i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_flags & PF_X)
            print_code(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr, info->dlpi_phdr[i].p_memsz);
    return 0;
}

static void user_print_code(void) {
    struct link_map *map;

    if (dlinfo(library, RTLD_DI_LINKMAP, &map))
        fail("user", 0, NULL, "%s: %s", options.object, dlerror());
    dl_iterate_phdr(print_segments, (void *)map->l_addr);
}

const struct backend user_backend = {"user", user_load, user_call, user_unload, user_print_code};
