// SPDX-License-Identifier: Apache-2.0
#include "lines.h"

#include <stdio.h>

void line_begin(const char *type) {
    static char buffer[1 << 20];
    static int is_set;
    if (!is_set)
        is_set = !setvbuf(stdout, buffer, _IOFBF, sizeof(buffer));
    printf("{\"type\":\"%s\"", type);
}

void line_number(const char *key, long long value) {
    if (value == UNKNOWN)
        line_text(key, NULL);
    else
        printf(",\"%s\":%lld", key, value);
}

void line_text(const char *key, const char *value) {
    if (!value) {
        printf(",\"%s\":null", key);
        return;
    }
    printf(",\"%s\":\"", key);
    for (const unsigned char *at = (const unsigned char *)value; *at; at++) {
        if (*at == '"' || *at == '\\')
            printf("\\%c", *at);
        else if (*at < 0x20 || *at >= 0x7f)
            printf("\\u%04x", *at);
        else
            putchar(*at);
    }
    putchar('"');
}

void line_end(void) { puts("}"); }
