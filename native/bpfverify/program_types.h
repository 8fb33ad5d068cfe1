// SPDX-License-Identifier: Apache-2.0
// What kind of program a section holds: by the user's table, else by libbpf's names, else by older ones.
#pragma once

#include <stdbool.h>

#define NO_TYPE_WORDS "no program type for section '%.128s' in libbpf %s: name it with --types"

struct program_kind {
    unsigned type;   // 0 if it is not known
    unsigned attach; // expected_attach_type
    unsigned flags;  // prog_flags
};

// Adds the rules of a file: one per line, OBJECT-PATTERN SECTION-PATTERN TYPE (shell patterns; TYPE as libbpf
// names it, such as sched_cls). The first rule that matches decides. Returns NULL, or what is wrong with
// which line.
const char *program_types_read(const char *path);

struct program_kind program_kind_of(const char *object_path, const char *section);

// The user's rule alone: it outranks what libbpf found.
bool program_kind_ruled(const char *object_path, const char *section, struct program_kind *kind);

// Does the verifier want to know what such a program attaches to.
bool program_type_has_target(unsigned type);
