// SPDX-License-Identifier: Apache-2.0
// The parts of a JSON object on standard output, behind its first key.
#pragma once

void print_string(const char *key, const char *value);
void print_number(const char *key, unsigned long long value);
void end_line(void);
