// SPDX-License-Identifier: Apache-2.0
// What a user must know about a BPF object that the kernel refused: the program, the verifier's last lines,
// and the compiler. Every loader links this file.
#pragma once

#include <stdarg.h>
#include <stddef.h>

// Keeps libbpf's warnings instead of printing them: the verifier's log is among them.
void refusal_collect(void);

// Keeps one more warning, such as libxdp's.
void refusal_keep(const char *format, va_list arguments);

void refusal_forget(void);

// Returns the end of what was kept.
const char *refusal_words(void);

// Returns the program that the kernel refused last, or `otherwise` where it came to none.
const char *refusal_program(const char *otherwise);

// Returns the last complaint in what was kept, on one line.
const char *refusal_reason(void);

// Returns the clang that an object's debug information names, or NULL.
const char *refusal_producer(const void *object, size_t bytes);

// Returns ", compiled by " and that clang; "" where none is named.
const char *refusal_compiler(const void *object, size_t bytes);
const char *refusal_compiler_of(const char *path);
