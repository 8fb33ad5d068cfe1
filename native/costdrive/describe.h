// SPDX-License-Identifier: Apache-2.0
// What the kernel's JIT has made of a program.
#pragma once

// Prints one object: its role, functions with their code, and the address of each source line.
void describe(unsigned id, const char *role);

// Where the JIT's code of a program begins.
unsigned long long entry_of(int fd);
