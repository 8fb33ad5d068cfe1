// SPDX-License-Identifier: Apache-2.0
// What the last instruction of a translated block does: how the call path goes on after it.
#pragma once

#include <stddef.h>
#include <stdint.h>

enum ending { GOES_ON, CALLS, RETURNS, BRANCHES };

// x86-64 only. Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, appendix A.
enum ending ending_of(const uint8_t *code, size_t size);
