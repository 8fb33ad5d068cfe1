// SPDX-License-Identifier: Apache-2.0
#include "error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct failure failure;

int fail(const char *step, int error, const char *format, ...) {
    va_list arguments;

    if (failure.step)
        return -failure.error;
    failure.step = step;
    failure.error = abs(error);
    va_start(arguments, format);
    vsnprintf(failure.message, sizeof(failure.message), format, arguments);
    va_end(arguments);
    return -failure.error;
}
