// SPDX-License-Identifier: Apache-2.0
// Programs that attach to another BPF program (freplace, and fentry and fexit of one) are verified against
// it.
#pragma once

#include <bpf/libbpf.h>

// Adds the rules of a file: one per line, OBJECT-PATTERN SECTION-PATTERN TARGET-OBJECT PROGRAM FUNCTION (the
// first two are shell patterns; TARGET-OBJECT is a file, relative to the table's folder). Returns NULL, or
// what is wrong with which line. `path` must outlive the targets.
const char *targets_read(const char *path);

// Loads what the rules name for this program, once for all, and attaches it to that function when it is
// loaded. Returns NULL, also if no rule is for it, or why it cannot.
const char *targets_set(struct bpf_program *program, const char *object_path);
