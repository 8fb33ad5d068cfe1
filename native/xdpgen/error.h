/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One failure, described where it happened and printed once, by main. Functions
 * that can fail return 0 or a negative errno, after fail() has noted step and
 * reason.
 */
struct failure {
    const char *step;
    int error; /* errno, positive */
    char message[1024];
    const char *log; /* of libbpf and the verifier, where they have said something; NULL elsewhere */
};

extern struct failure failure;

/* Notes the failure (the first one stays) and returns -error. */
__attribute__((format(printf, 3, 4))) int fail(const char *step, int error, const char *format, ...);
