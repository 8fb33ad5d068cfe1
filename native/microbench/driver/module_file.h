// SPDX-License-Identifier: Apache-2.0
#ifndef MICROBENCH_MODULE_FILE_H
#define MICROBENCH_MODULE_FILE_H

// Inserts the kernel module in a file, and takes it out again by the file's name. End the program on error.
void module_insert(const char *path);
void module_remove(const char *path);

// Where its code lies, by /sys.
unsigned long long module_text(void);

#endif
