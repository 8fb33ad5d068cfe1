// SPDX-License-Identifier: Apache-2.0
#include "output.h"

#include <stdio.h>
#include <string.h>

static void print_string(const char *key, const char *value) {
    printf(",\"%s\":", key);
    if (!value) {
        printf("null");
        return;
    }
    putchar('"');
    for (const unsigned char *at = (const unsigned char *)value; *at; at++)
        if (*at == '"' || *at == '\\')
            printf("\\%c", *at);
        else if (*at < 0x20 || *at >= 0x7f)
            printf("\\u%04x", *at);
        else
            putchar(*at);
    putchar('"');
}

// Negative: not known.
static void print_known(const char *key, long long value) {
    if (value < 0)
        print_string(key, NULL);
    else
        printf(",\"%s\":%lld", key, value);
}

static void print_rounds(const struct subject *subject, const struct rounds *rounds) {
    printf(",\"times\":%ld,\"ns\":[", rounds->times);
    for (long i = 0; !subject->failed && i < rounds->rounds; i++)
        printf("%s%lld", i ? "," : "", subject->ns[i]);
    putchar(']');
}

// The verifier's last line but one says what it does not like; the last one are its statistics.
static void print_failure(const struct subject *subject) {
    print_string("failed", subject->failed);
    print_string("error", subject->failed && subject->error ? strerror(subject->error) : NULL);
    print_string("words", subject->failed && *subject->words ? subject->words : NULL);
}

void print_kernel(int compiles) {
    printf("{\"type\":\"kernel\",\"compiles\":%s}\n", compiles ? "true" : "false");
}

void print_subject(const struct subject *subject, const struct rounds *rounds) {
    printf("{\"type\":\"subject\"");
    print_string("name", subject->name);
    printf(",\"insns\":%lld,\"verdict\":%lld", subject->insns, subject->verdict);
    print_known("xlated_bytes", subject->xlated);
    print_known("jited_bytes", subject->jited);
    print_rounds(subject, rounds);
    print_failure(subject);
    printf("}\n");
}
