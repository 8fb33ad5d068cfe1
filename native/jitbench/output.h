// SPDX-License-Identifier: Apache-2.0
// One JSON object a line: first what the kernel does with programs, then each subject.
#pragma once

#include "bench.h"

void print_kernel(int compiles);
void print_subject(const struct subject *subject, const struct rounds *rounds);
