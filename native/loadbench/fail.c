// SPDX-License-Identifier: Apache-2.0
#include "fail.h"
#include "lines.h"
#include "refusal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOG_TAIL 4096

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
    line_text("log", log && *log ? tail(log) : refusal_words());
    line_end();
    exit(1);
}
