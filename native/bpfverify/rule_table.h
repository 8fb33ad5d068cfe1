// SPDX-License-Identifier: Apache-2.0
// Tables of rules about BPF objects: one rule per line, of as many words as its form has.
#pragma once

#include <stdbool.h>

#define MOST_RULES 256
#define RULE_WORD 128
#define MOST_WORDS 5

// Reads a table and gives the words of each rule to `take`, which returns NULL or what is wrong. Empty
// lines and lines that begin with # are skipped. `form` names the words, with a space between. Returns NULL,
// or what is wrong with which line.
const char *rule_table_read(const char *path, const char *form, const char *(*take)(char *const *words));

// Whether a shell pattern matches the file name of an object.
bool rule_is_for(const char *pattern, const char *object_path);
