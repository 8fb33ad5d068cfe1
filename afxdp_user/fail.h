// SPDX-License-Identifier: Apache-2.0
// The error line, and what libbpf and libxdp said that belongs to it.
#pragma once

// Keeps the warnings of libbpf and libxdp, so that they end up in the error line.
void collect_words(void);

// Prints the error line, with what the libraries said, and ends the process with exit code 1. `error` is a
// positive errno.
__attribute__((noreturn, format(printf, 3, 4))) void fail(const char *step, int error, const char *format,
                                                          ...);
