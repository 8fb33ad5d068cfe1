// SPDX-License-Identifier: Apache-2.0
#include "input.h"
#include "command_line.h"
#include "maps.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static int digit(char letter) {
    if (letter >= '0' && letter <= '9')
        return letter - '0';
    return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

static int read_hex(const char *text, uint8_t **bytes, size_t *count) {
    *bytes = NULL;
    *count = 0;
    if (!strcmp(text, "-"))
        return 0;
    size_t digits = strlen(text);
    // Whole pages: copying what lies across two of them costs the kernel more.
    if (digits % 2 || !(*bytes = aligned_alloc(PAGE_BYTES, (digits / 2 / PAGE_BYTES + 1) * PAGE_BYTES)))
        return -1;
    for (; *count < digits / 2; ++*count) {
        int high = digit(text[2 * *count]), low = digit(text[2 * *count + 1]);
        if (high < 0 || low < 0)
            return -1;
        (*bytes)[*count] = high << 4 | low;
    }
    return 0;
}

static int read_number(const char *text, long *number) {
    char *end;
    *number = strtol(text, &end, 10);
    return *text && !*end ? 0 : -1;
}

static int read_subject(char *line, struct subject *subject) {
    char *fields[5], *rest = line;
    for (int i = 0; i < 5; i++)
        if (!(fields[i] = strtok_r(i ? NULL : line, " \n", &rest)) && i < 4)
            return -1;
    if (strlen(fields[0]) >= NAME_BYTES || strtok_r(NULL, " \n", &rest))
        return -1;
    strcpy(subject->name, fields[0]);
    if (fields[4] && !map_is_known(fields[4]))
        return -1;
    strcpy(subject->map, fields[4] ? fields[4] : "");
    if (read_hex(fields[1], &subject->code, &subject->code_bytes) || subject->code_bytes % 8)
        return -1;
    if (read_hex(fields[2], &subject->data, &subject->data_bytes))
        return -1;
    return read_number(fields[3], &subject->number);
}

int read_subjects(FILE *file, struct subject *subjects) {
    char *line = NULL;
    size_t space = 0;
    int count = 0;
    while (getline(&line, &space, file) >= 0) {
        if (count == MOST_SUBJECTS || read_subject(line, &subjects[count]))
            command_line_refuse("line %d is not NAME CODE DATA NUMBER [MAP], or there are too many lines",
                                count + 1);
        count++;
    }
    free(line);
    return count;
}
