// SPDX-License-Identifier: Apache-2.0
// The error line.
#pragma once

// What an errno means, also the one that drivers answer with though no program should ever see it.
const char *error_words(int error);

// Prints the error line and ends the process with exit code 1. `error` is a positive errno, `log` may be
// NULL.
__attribute__((noreturn, format(printf, 4, 5))) void fail(const char *step, int error, const char *log,
                                                          const char *format, ...);

// Prints the error line of a command; xdpload keeps its program and goes on.
__attribute__((format(printf, 3, 4))) void complain(const char *step, int error, const char *format, ...);
