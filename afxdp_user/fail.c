// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "fail.h"
#include "lines.h"
#include "refusal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xdp/libxdp.h>

static int keep_libxdp(enum libxdp_print_level level, const char *format, va_list arguments) {
    if (level == LIBXDP_WARN)
        refusal_keep(format, arguments);
    return 0;
}

void collect_words(void) {
    refusal_collect();
    libxdp_set_print(keep_libxdp);
}

void fail(const char *step, int error, const char *format, ...) {
    char message[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    const char *name = strerrorname_np(error);
    printf("{\"type\":\"error\"");
    print_string("step", step);
    print_number("errno", error);
    print_string("error", name ? name : "unknown");
    print_string("message", message);
    if (*refusal_words())
        print_string("log", refusal_words());
    else
        printf(",\"log\":null");
    end_line();
    exit(1);
}
