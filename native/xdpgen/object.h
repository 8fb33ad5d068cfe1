// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>

struct bpf_object;

extern const char embedded_send_start[], embedded_send_end[];
extern const char embedded_receive_start[], embedded_receive_end[];
extern const char embedded_receive_device_start[], embedded_receive_device_end[];
extern const char embedded_refused_start[], embedded_refused_end[];

// Opens one embedded object and fills its .rodata, which is one struct. NULL after failed().
struct bpf_object *object_open(const char *name, const char *start, const char *end, const void *settings,
                               size_t settings_size);
#define OBJECT_OPEN(name, settings)                                                                          \
    object_open(#name, embedded_##name##_start, embedded_##name##_end, (settings), sizeof(*(settings)))

int object_load(struct bpf_object *object);

// Returns ", compiled by " and the one clang that made all embedded objects.
const char *object_compiler(void);

int object_map_fd(struct bpf_object *object, const char *map);

// Maps the object's .bss. NULL after failed().
void *object_memory(struct bpf_object *object, size_t size);

int object_program_fd(struct bpf_object *object, const char *program);

// Space for the values of all possible CPUs of one per-CPU map entry; value_size must be a multiple of 8.
void *per_cpu_values(size_t value_size);
