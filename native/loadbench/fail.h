// SPDX-License-Identifier: Apache-2.0
// The error line, and libbpf's own words that belong to it.
#pragma once

// Prints the error line and ends the process with exit code 1. `error` is a positive errno or 0, `log` may be
// NULL.
__attribute__((noreturn, format(printf, 4, 5))) void fail(const char *step, int error, const char *log,
                                                          const char *format, ...);
