// SPDX-License-Identifier: Apache-2.0
// What is set in an object before and after it is loaded: constants, sizes and contents of maps.
#pragma once

#include "options.h"

#include <bpf/libbpf.h>

// constants.c
void set_constants(struct bpf_object *object, const struct settings *settings);

// setup.c
void resize_maps(struct bpf_object *object, const struct settings *settings);

// BPF_F_ZERO_SEED for every hash map, before the object is loaded.
void zero_seeds(struct bpf_object *object);
void fill_maps(struct bpf_object *object, const struct settings *settings);
