// SPDX-License-Identifier: Apache-2.0
// What the plugin asks of an instruction, by its machine.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// What the last instruction of a translated block does: how the call path goes on after it.
enum ending { GOES_ON, CALLS, RETURNS, BRANCHES };

// Each function gets an instruction's code and its size in bytes.
struct machine {
    const char *name; // as QEMU calls it
    enum ending (*ending_of)(const uint8_t *code, size_t size);
    // Which mark (marks.h) it is, 0 if none, and a part's value.
    unsigned (*mark_of)(const uint8_t *code, size_t size, uint16_t *value);
    bool (*looks_at_clock)(const uint8_t *code, size_t size);
    // Whether QEMU 7.2 may leave it in the midst: then it keeps calls for its memory, which are gone when it
    // translates anew.
    bool (*may_be_left)(const uint8_t *code, size_t size);
};

extern const struct machine x86_64, aarch64;
