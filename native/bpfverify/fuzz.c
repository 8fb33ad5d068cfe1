// SPDX-License-Identifier: Apache-2.0
// libFuzzer's entry: an object as bytes, read as far as it goes without a kernel.
#include "raw_object.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct elf_file elf;
    struct raw_object object;
    void *bytes = malloc(size + 1); // aligned, and its end guarded
    memcpy(bytes, data, size);
    if (!elf_open(&elf, bytes, size)) {
        raw_object_read(&object, &elf);
        raw_object_free(&object);
    }
    free(bytes);
    return 0;
}
