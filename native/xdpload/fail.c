// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "fail.h"
#include "json.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOG_TAIL 4096
#define ENOTSUPP 524 // of the kernel's own include/linux/errno.h

const char *error_words(int error) {
    return error == ENOTSUPP ? "Operation is not supported" : strerror(error);
}

static const char *error_name(int error) { return error == ENOTSUPP ? "ENOTSUPP" : strerrorname_np(error); }

static const char *tail(const char *log) {
    size_t length = log ? strlen(log) : 0;
    return length > LOG_TAIL ? log + length - LOG_TAIL : log;
}

static void print_error(const char *step, int error, const char *log, const char *message) {
    static struct json json;
    json_begin(&json, "error");
    json_string(&json, "step", step);
    json_integer(&json, "errno", error);
    json_string(&json, "error", error ? error_name(error) : NULL);
    json_string(&json, "message", message);
    json_string(&json, "log", log && *log ? tail(log) : NULL);
    json_end(&json);
}

void fail(const char *step, int error, const char *log, const char *format, ...) {
    char message[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    print_error(step, error, log, message);
    exit(1);
}

void complain(const char *step, int error, const char *format, ...) {
    char message[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    print_error(step, error, NULL, message);
}
