// SPDX-License-Identifier: Apache-2.0
// The kernel's images of the program.
#include "commands.h"
#include "fail.h"
#include "json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void write_image(const char *image, const char *path, const void *bytes, size_t length) {
    FILE *file = fopen(path, "wb");
    bool whole = file && fwrite(bytes, 1, length, file) == length;
    if (!file || fclose(file) || !whole) {
        complain("dump", errno, "%s cannot be written", path);
        return;
    }
    json_begin("dump");
    json_string("image", image);
    json_string("file", path);
    json_integer("bytes", length);
    json_end();
}

void dump(const struct program *program, char *arguments) {
    char image[8] = "", path[4096] = "";
    sscanf(arguments, "%7s %4095[^\n]", image, path);
    bool jited = !strcmp(image, "jited");
    if ((!jited && strcmp(image, "xlated")) || !*path) {
        complain("dump", EINVAL, "dump takes xlated or jited and a file name");
        return;
    }
    struct bpf_prog_info info = {};
    if (program_info(program, &info)) {
        complain("dump", errno, "the program cannot be read back");
        return;
    }
    size_t length = jited ? info.jited_prog_len : info.xlated_prog_len;
    void *bytes = calloc(1, length + 1);
    info = (struct bpf_prog_info){};
    if (jited) {
        info.jited_prog_insns = (unsigned long)bytes;
        info.jited_prog_len = length;
    } else {
        info.xlated_prog_insns = (unsigned long)bytes;
        info.xlated_prog_len = length;
    }
    int error = bytes ? program_info(program, &info) : -ENOMEM;
    // The kernel zeroes the pointer where kernel.kptr_restrict or lockdown keeps the image to itself.
    if (error || !length || !(jited ? info.jited_prog_insns : info.xlated_prog_insns))
        complain("dump", error ? -error : EPERM, "the kernel does not show the %s image", image);
    else
        write_image(image, path, bytes, length);
    free(bytes);
}
