// SPDX-License-Identifier: Apache-2.0
// For targets whose parser ends the program where it refuses an input: exit() comes back here instead.
#pragma once

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

static jmp_buf refused;

// The tools' sources are compiled with -Dexit=refuse.
__attribute__((noreturn)) void refuse(int status);
__attribute__((noreturn)) void refuse(int status) { longjmp(refused, status ? status : -1); }
