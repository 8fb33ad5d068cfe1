// SPDX-License-Identifier: Apache-2.0
// What a project's own loader writes into global variables before it loads an object.
#pragma once

#include <bpf/libbpf.h>

// Adds the rules of a file: a line each of OBJECT-PATTERN VARIABLE INTEGER (shell pattern). Returns NULL, or
// what is wrong, naming the line.
const char *globals_read(const char *path);

// Sets what the rules say of this object, before it is loaded. Returns NULL, or which rule cannot be
// followed.
const char *globals_set(struct bpf_object *object, const char *object_path);

// The first rule for an object that cannot be followed, where nothing can be set; else NULL.
const char *globals_missing(const char *object_path);
