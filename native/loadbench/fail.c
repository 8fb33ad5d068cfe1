// SPDX-License-Identifier: Apache-2.0
#include "fail.h"
#include "lines.h"

#include <bpf/libbpf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOG_TAIL 4096

static char words[LOG_TAIL];

static int keep_words(enum libbpf_print_level level, const char *format, va_list arguments) {
    size_t used = strlen(words);
    if (level == LIBBPF_WARN && used < sizeof(words) - 1)
        vsnprintf(words + used, sizeof(words) - used, format, arguments);
    return 0;
}

void collect_libbpf_words(void) { libbpf_set_print(keep_words); }

static const char *tail(const char *log) {
    size_t length = log ? strlen(log) : 0;
    return length > LOG_TAIL ? log + length - LOG_TAIL : log;
}

void fail(const char *step, int error, const char *log, const char *format, ...) {
    char message[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    line_begin("error");
    line_text("step", step);
    line_text("error", error ? strerrorname_np(error) : NULL);
    line_text("message", message);
    line_text("log", log && *log ? tail(log) : words);
    line_end();
    exit(1);
}
