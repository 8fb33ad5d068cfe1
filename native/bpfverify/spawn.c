// SPDX-License-Identifier: Apache-2.0
// Why here and not in Python: a child's ru_maxrss begins with the memory of the process it was forked from,
// and an interpreter's is larger than what is to be measured.
#include "spawn.h"
#include "clock.h"
#include "json.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define CANNOT_RUN 127

static pid_t child;
static volatile sig_atomic_t late;

static void end_child(int number) {
    (void)number;
    late = 1;
    kill(child, SIGKILL);
}

__attribute__((noreturn)) static void become(unsigned long long memory, char **command) {
    const struct rlimit limit = {memory, memory};
    const struct rlimit no_core = {0, 0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setrlimit(RLIMIT_AS, &limit);
    setrlimit(RLIMIT_CORE, &no_core);
    execvp(command[0], command);
    fprintf(stderr, "%s: %s\n", command[0], strerror(errno));
    _exit(CANNOT_RUN);
}

static void print_end(int status, const struct rusage *used, long long wall_ns) {
    if (write(STDOUT_FILENO, "\n", 1) < 0)
        return;
    json_begin("run");
    json_known("exit_code", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    json_known("signal", WIFSIGNALED(status) ? WTERMSIG(status) : -1);
    json_integer("late", late);
    json_integer("wall_ns", wall_ns);
    json_integer("user_ns", used->ru_utime.tv_sec * 1000000000LL + used->ru_utime.tv_usec * 1000LL);
    json_integer("peak_bytes", used->ru_maxrss * 1024LL);
    json_end();
}

int spawn(char **arguments) {
    struct rusage used;
    int status;
    if (!arguments[0] || !arguments[1] || !arguments[2]) {
        fputs("usage: bpfverify --run SECONDS BYTES COMMAND...\n", stderr);
        return 2;
    }
    signal(SIGALRM, end_child);
    long long start = now_ns();
    child = fork();
    if (child == 0)
        become(strtoull(arguments[1], NULL, 10), arguments + 2);
    if (child < 0)
        return 1;
    alarm(strtoul(arguments[0], NULL, 10));
    while (wait4(child, &status, 0, &used) < 0)
        if (errno != EINTR)
            return 1;
    print_end(status, &used, now_ns() - start);
    return 0;
}
