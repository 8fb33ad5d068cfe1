// SPDX-License-Identifier: Apache-2.0
// Sets global variables before an object is loaded, as a project's own loader would.
#pragma once

#include <bpf/libbpf.h>

// Adds the rules of a file: one per line, OBJECT-PATTERN VARIABLE INTEGER (a shell pattern). Returns NULL, or
// what is wrong with which line.
const char *globals_read(const char *path);

// Sets the variables of an object by its rules, before it is loaded. Returns NULL, or which rule cannot be
// followed and why.
const char *globals_set(struct bpf_object *object, const char *object_path);

// For an object whose variables cannot be set: returns an error that names its first rule, or NULL if it has
// none.
const char *globals_missing(const char *object_path);
