// SPDX-License-Identifier: Apache-2.0
// The maps of programs, filled: the value of key k is k + 1, eight bytes, the same for every CPU.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct ring;

bool map_is_known(const char *kind);
// Makes a map of a kind (array, hash, …) and returns its descriptor, or -1 with errno. Of a ring buffer it
// sets `ring`: its `entries` are bytes, and it begins empty.
int map_open(const char *kind, uint32_t entries, struct ring **ring);

// Nobody reads a ring buffer while programs run: before each round all of it counts as read. NULL: nothing.
void ring_empty(struct ring *ring);
void ring_close(struct ring *ring);
