/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MICROBENCH_FAIL_H
#define MICROBENCH_FAIL_H

/* Says one line on standard error and ends the program; `error` is an errno, or 0. */
void fail(int error, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));

#endif
