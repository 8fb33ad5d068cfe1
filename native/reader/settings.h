// SPDX-License-Identifier: Apache-2.0
// What costs time on a host and can change, read at once: one line for each, its name, a tab and its value.
#pragma once

#include <stdio.h>

// Files by their patterns (glob(7)), under their path; a file that is not there is left out. Then what no
// file says, of the port `device` and of BPF. A value that cannot be read is "absent: " with the kernel's
// words.
void print_settings(FILE *out, const char *device, char *const *patterns);

void print_port(FILE *out, const char *device);
void print_programs(FILE *out, unsigned ifindex);
