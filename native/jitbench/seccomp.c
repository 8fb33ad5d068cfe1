// SPDX-License-Identifier: Apache-2.0
// Classic filters on system calls. A filter cannot be taken off again: each round is a process of its own.
#include "bench.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// What the child tells the parent.
struct answer {
    const char *failed; // the same address in both
    int error;
    long long verdict, ns;
};

static int install(struct subject *subject) {
    struct sock_fprog program = {
        .len = subject->code_bytes / sizeof(struct sock_filter),
        .filter = (struct sock_filter *)subject->code,
    };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return blame(subject, "PR_SET_NO_NEW_PRIVS");
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program))
        return blame(subject, "SECCOMP_SET_MODE_FILTER");
    return 0;
}

// getppid does nothing with its argument: only the filter looks at it.
static int call(struct subject *subject) {
    subject->verdict = syscall(SYS_getppid, subject->number) < 0 ? errno : 0;
    return 0;
}

static void child(struct subject *subject, long times, int pipe_end) {
    struct answer answer = {0};
    // The first calls of a process meet pages that it has not touched yet.
    if (!install(subject) && !time_loop(subject, 2, call))
        time_loop(subject, times, call);
    answer.failed = subject->failed;
    answer.error = subject->error;
    answer.verdict = subject->verdict;
    answer.ns = batch_ns;
    _exit(write(pipe_end, &answer, sizeof(answer)) != sizeof(answer));
}

static int take(struct subject *subject, int pipe_end) {
    struct answer answer;
    ssize_t taken = read(pipe_end, &answer, sizeof(answer));
    if (taken != sizeof(answer)) {
        errno = 0;
        return blame(subject, "the filter ended its process");
    }
    subject->failed = answer.failed;
    subject->error = answer.error;
    subject->verdict = answer.verdict;
    batch_ns = answer.ns;
    return subject->failed ? -1 : 0;
}

static int in_a_child(struct subject *subject, long times) {
    int ends[2];
    if (pipe(ends))
        return blame(subject, "pipe");
    pid_t process = fork();
    if (process == 0)
        child(subject, times, ends[1]);
    close(ends[1]);
    int error = process < 0 ? blame(subject, "fork") : take(subject, ends[0]);
    close(ends[0]);
    if (process > 0)
        waitpid(process, NULL, 0);
    return error;
}

static int nothing_to_open(struct subject *subject) {
    (void)subject;
    return 0;
}

static void nothing_to_close(struct subject *subject) { (void)subject; }

const struct bench SECCOMP_FILTERS = {
    .name = "seccomp",
    .says = "classic: filter CODE on getppid(NUMBER)",
    .open = nothing_to_open,
    .batch = in_a_child,
    .close = nothing_to_close,
};
