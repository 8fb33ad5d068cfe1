// SPDX-License-Identifier: Apache-2.0
#include "lines.h"

#include <stdio.h>

void print_string(const char *key, const char *value) {
    printf(",\"%s\":\"", key);
    for (const unsigned char *at = (const unsigned char *)value; *at; at++) {
        if (*at == '"' || *at == '\\')
            printf("\\%c", *at);
        else if (*at < 0x20)
            printf("\\u%04x", *at);
        else
            putchar(*at);
    }
    putchar('"');
}

void print_number(const char *key, unsigned long long value) { printf(",\"%s\":%llu", key, value); }

void end_line(void) {
    puts("}");
    fflush(stdout); // fully buffered until here
}
