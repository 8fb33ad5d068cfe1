// SPDX-License-Identifier: Apache-2.0
// One JSON object a line on standard output. Nothing is written before the process ends or its buffer is
// full: who reads along must not run while something is measured.
#pragma once

#define UNKNOWN (-1)

void line_begin(const char *type);
void line_number(const char *key, long long value); // UNKNOWN becomes null
void line_text(const char *key, const char *value); // NULL becomes null
void line_end(void);
