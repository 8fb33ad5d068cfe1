// SPDX-License-Identifier: Apache-2.0
// Programs of an object that are loaded beside the measured one, and the entries of maps that name them.
#pragma once

#include "options.h"
#include "program.h"

// Loads this one as a program of `type` for `attach_type`, and as no other; ends the process where its
// section says that it is of another kind. `forced`: whatever the section says of the attach type.
void take_program(struct bpf_program *program, enum bpf_prog_type type, unsigned attach_type, bool forced);

// Takes the programs that --also and --map name, before the object is loaded.
void take_companions(const struct program *program, const struct options *options);

// Puts the entries that --map names into their maps. False, and an error line, where one cannot be set.
bool fill_tables(const struct program *program, const struct settings *entries);
