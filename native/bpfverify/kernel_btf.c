// SPDX-License-Identifier: Apache-2.0
// libbpf reads the kernel's BTF for each object that it opens: 5 MB, of which the kernel gives one page per
// read(). This fopen64() comes before libc's in the dynamic linker's search, and gives it one copy in memory.
#include "libc_function.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KERNEL_BTF "/sys/kernel/btf/vmlinux"
#define MOST_BYTES (256u << 20)
#define STEP_BYTES (1u << 20)

typedef FILE *(*open_function)(const char *, const char *);

static bool tried;
static unsigned char *bytes; // NULL: there is no copy, libbpf reads the file itself
static size_t size;

static FILE *libc_fopen(const char *path, const char *mode) {
    static open_function found;
    if (!found)
        found = (open_function)libc_function("fopen64");
    return found(path, mode);
}

static bool read_whole(FILE *file) {
    size_t got = 1;
    while (got && size < MOST_BYTES) {
        unsigned char *more = realloc(bytes, size + STEP_BYTES);
        if (!more)
            return false;
        bytes = more;
        got = fread(bytes + size, 1, STEP_BYTES, file);
        size += got;
    }
    return size && !got && !ferror(file);
}

static void keep(void) {
    tried = true;
    FILE *file = libc_fopen(KERNEL_BTF, "re");
    if (file && !read_whole(file)) {
        free(bytes);
        bytes = NULL;
    }
    if (file)
        fclose(file);
}

FILE *fopen64(const char *path, const char *mode) {
    bool wanted = mode[0] == 'r' && !strcmp(path, KERNEL_BTF);
    if (wanted && !tried)
        keep();
    return wanted && bytes ? fmemopen(bytes, size, "r") : libc_fopen(path, mode);
}
