// SPDX-License-Identifier: Apache-2.0
// Source: Arm Architecture Reference Manual for A-profile architecture, C4.1 "A64 instruction set encoding".
#include "decode.h"
#include "marks.h"

#include <string.h>

static uint32_t word_of(const uint8_t *code, size_t size) {
    uint32_t word = 0;

    memcpy(&word, code, size < sizeof(word) ? size : sizeof(word)); // of a guest in the order of this machine
    return word;
}

static enum ending ending_of(const uint8_t *code, size_t size) {
    uint32_t word = word_of(code, size), kind = word >> 21 & 7;

    if (word >> 26 == 0x25) // bl
        return CALLS;
    if (word >> 25 == 0x6b) // to a register's address; the higher kinds leave an exception
        return kind == 1 ? CALLS : kind == 2 ? RETURNS : GOES_ON;
    if (word >> 24 == 0x54 || (word & 0x7c000000) == 0x34000000) // b.cond; cbz, cbnz, tbz, tbnz
        return BRANCHES;
    return GOES_ON;
}

static unsigned mark_of(const uint8_t *code, size_t size, uint16_t *value) {
    uint32_t word = word_of(code, size);

    for (unsigned mark = MARK_SWITCH; mark <= MARK_APPLICATION_END; mark++)
        if (word == ARM64_MARK(mark))
            return mark;
    *value = word >> 5;
    return (word & 0xff80001f) == ARM64_PART(MARK_PART, 0) ? MARK_PART + (word >> 21 & 3) : 0;
}

// mrs of the virtual or the physical counter, or of its self-synchronized view.
static bool looks_at_clock(const uint8_t *code, size_t size) {
    uint32_t counter = word_of(code, size) >> 5;

    return counter == 0xd53be020 >> 5 || counter == 0xd53be040 >> 5 || counter == 0xd53be0a0 >> 5 ||
           counter == 0xd53be0c0 >> 5;
}

// All but loads and stores, and what clears a block of memory: an exception leaves svc, wfi, and others.
static bool may_be_left(const uint8_t *code, size_t size) {
    uint32_t word = word_of(code, size);

    return (word & 0x0a000000) != 0x08000000 && (word & 0xffffffe0) != 0xd50b7420;
}

const struct machine aarch64 = {"aarch64", ending_of, mark_of, looks_at_clock, may_be_left};
