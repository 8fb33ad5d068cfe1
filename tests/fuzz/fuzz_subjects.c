// SPDX-License-Identifier: Apache-2.0
// jitbench: its subjects as lines of text.
#include "input.h"
#include "refusing.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct subject subjects[MOST_SUBJECTS];
    FILE *file = fmemopen((void *)data, size + !size, "r");
    volatile int count = MOST_SUBJECTS;

    if (!file)
        return 0;
    for (int i = 0; i < MOST_SUBJECTS; i++)
        subjects[i] = (struct subject){};
    if (!setjmp(refused))
        count = read_subjects(file, subjects);
    for (int i = 0; i < count; i++) {
        free(subjects[i].code);
        free(subjects[i].data);
    }
    fclose(file);
    return 0;
}
