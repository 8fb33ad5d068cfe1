// SPDX-License-Identifier: Apache-2.0
#include "bench.h"
#include "clock.h"
#include "fail.h"
#include "json.h"

#include <errno.h>
#include <spawn.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

extern char **environ;

static long long ns_of(const struct timeval *time) {
    return time->tv_sec * 1000000000LL + time->tv_usec * 1000LL;
}

// Returns the time until it has ended; `own_ns` is what it ran, without waiting for its libraries to be read.
static long long start_once(long long *own_ns) {
    char *const arguments[] = {"loadbench", "nothing", NULL};
    struct rusage used;
    pid_t child;
    int status = 0;
    long long start = now_ns();
    int error = posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ);
    if (error || wait4(child, &status, 0, &used) < 0 || status)
        fail("start", error ? error : errno, NULL, "no process can be started");
    *own_ns = ns_of(&used.ru_utime) + ns_of(&used.ru_stime);
    return now_ns() - start;
}

void start_bench(void) {
    for (unsigned int rank = 0; bench_next(rank); rank++) {
        long long own_ns;
        long long took = start_once(&own_ns);
        json_begin("start");
        json_known("rank", rank);
        json_known("start_ns", took);
        json_known("own_ns", own_ns);
        json_end();
    }
}
