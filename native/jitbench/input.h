// SPDX-License-Identifier: Apache-2.0
// Subjects as lines of text: NAME CODE DATA NUMBER, code and data in hexadecimal digits, `-` for none.
#pragma once

#include "bench.h"

#include <stdio.h>

// Returns how many were read. Ends the program where a line is none.
int read_subjects(FILE *file, struct subject *subjects);
