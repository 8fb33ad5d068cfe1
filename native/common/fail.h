// SPDX-License-Identifier: Apache-2.0
// The error line, the same in every tool:
// {"type":"error","step":…,"errno":…,"error":"ENOENT","message":…,"log":…}
//
// `error` is an errno, of either sign; if it is 0, there is none, and both fields are null. `log` is what
// the kernel or a library said; NULL or "" becomes null, and only the end of a long one is kept.
#pragma once

// The meaning of an errno, including the one that drivers return although no program should see it.
const char *error_words(int error);

// Prints the error line and ends the process with exit code 1.
__attribute__((noreturn, format(printf, 4, 5))) void fail(const char *step, int error, const char *log,
                                                          const char *format, ...);

// The error line of no errno as a constant, for a signal handler. Neither text may need escapes in JSON.
#define FAILURE_LINE(step, message)                                                                          \
    "{\"type\":\"error\",\"step\":\"" step "\",\"errno\":null,\"error\":null,\"message\":\"" message         \
    "\",\"log\":null}\n"

// Prints the error line; the tool continues.
__attribute__((format(printf, 3, 4))) void complain(const char *step, int error, const char *format, ...);

// For functions that return errors: records the first failure and returns its negative errno. fail_print()
// prints it.
__attribute__((format(printf, 4, 5))) int failed(const char *step, int error, const char *log,
                                                 const char *format, ...);
int failed_before(void); // that errno, or 0
void fail_print(void);
