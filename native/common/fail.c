// SPDX-License-Identifier: Apache-2.0
#include "fail.h"
#include "json.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOG_TAIL 4096
#define ENOTSUPP 524 // of the kernel's own include/linux/errno.h

struct failure {
    const char *step; // NULL: none yet
    int error;
    char *message, *log;
};

static struct failure first;

const char *error_words(int error) {
    return error == ENOTSUPP ? "Operation is not supported" : strerror(error);
}

static const char *error_name(int error) { return error == ENOTSUPP ? "ENOTSUPP" : strerrorname_np(error); }

static char *copy_of_end(const char *log) {
    size_t length = log ? strlen(log) : 0;
    return length ? strdup(length > LOG_TAIL ? log + length - LOG_TAIL : log) : NULL;
}

static struct failure described(const char *step, int error, const char *log, const char *format,
                                va_list arguments) {
    struct failure failure = {.step = step, .error = abs(error), .log = copy_of_end(log)};
    if (vasprintf(&failure.message, format, arguments) < 0)
        failure.message = strdup(format);
    return failure;
}

static void print(const struct failure *failure) {
    json_begin("error");
    json_string("step", failure->step);
    if (failure->error)
        json_integer("errno", failure->error);
    else
        json_null("errno");
    json_string("error", failure->error ? error_name(failure->error) : NULL);
    json_string("message", failure->message);
    json_string("log", failure->log);
    json_end();
}

void fail(const char *step, int error, const char *log, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    struct failure failure = described(step, error, log, format, arguments);
    va_end(arguments);
    print(&failure);
    exit(1);
}

void complain(const char *step, int error, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    struct failure failure = described(step, error, NULL, format, arguments);
    va_end(arguments);
    print(&failure);
    free(failure.message);
}

int failed(const char *step, int error, const char *log, const char *format, ...) {
    if (first.step)
        return -first.error;
    va_list arguments;
    va_start(arguments, format);
    first = described(step, error, log, format, arguments);
    va_end(arguments);
    return -first.error;
}

int failed_before(void) { return -first.error; }

void fail_print(void) { print(&first); }
