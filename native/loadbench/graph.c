// SPDX-License-Identifier: Apache-2.0
#include "graph.h"
#include "fail.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#define TRACEFS "/sys/kernel/tracing/"

static int marker = -1;

static bool write_file(const char *name, const char *value, int flags) {
    char path[256];
    snprintf(path, sizeof(path), TRACEFS "%s", name);
    int fd = open(path, O_WRONLY | O_CLOEXEC | flags);
    bool written = fd >= 0 && write(fd, value, strlen(value)) == (ssize_t)strlen(value);
    int error = errno;
    if (fd >= 0)
        close(fd);
    errno = error;
    return written;
}

static void set(const char *name, const char *value) {
    if (!write_file(name, value, 0))
        fail("trace", errno, NULL, "%s cannot be set to %s: %s", name, value, strerror(errno));
}

static void require_idle(void) {
    char tracer[32] = "";
    FILE *file = fopen(TRACEFS "current_tracer", "re");
    if (!file && !mount("none", "/sys/kernel/tracing", "tracefs", 0, NULL))
        file = fopen(TRACEFS "current_tracer", "re");
    if (!file)
        fail("trace", errno, NULL, "there is no tracefs: %s", strerror(errno));
    bool known = fscanf(file, "%31s", tracer) == 1;
    fclose(file);
    if (!known || strcmp(tracer, "nop"))
        fail("trace", EBUSY, NULL, "this kernel is being traced already (current_tracer is %s)", tracer);
}

static void clear(const char *name) {
    char path[256];
    snprintf(path, sizeof(path), TRACEFS "%s", name);
    int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
}

// A function that this kernel's compiler inlined is missing: the others are still useful.
static void filter(const char *functions) {
    char *names = strdup(functions), *rest = names, *name;
    int found = 0;
    clear("set_ftrace_filter");
    while ((name = strsep(&rest, ",")))
        found += write_file("set_ftrace_filter", name, O_APPEND);
    free(names);
    if (!found)
        fail("trace", ENOENT, NULL, "this kernel lets none of %s be traced", functions);
}

static void restore(void) {
    write_file("current_tracer", "nop", 0);
    clear("set_ftrace_filter");
    clear("set_ftrace_pid");
    clear("trace");
    write_file("tracing_on", "1", 0);
}

void graph_arm(const char *functions) {
    char pid[16];
    require_idle();
    set("tracing_on", "0");
    atexit(restore);
    filter(functions);
    set("current_tracer", "function_graph");
    snprintf(pid, sizeof(pid), "%d", getpid());
    set("set_ftrace_pid", pid);
    set("options/funcgraph-proc", "1");
    set("options/funcgraph-irqs", "0");
    set("tracing_on", "1");
    marker = open(TRACEFS "trace_marker", O_WRONLY | O_CLOEXEC);
}

static void mark(const char *word, unsigned cycle) {
    char text[32];
    int length = snprintf(text, sizeof(text), "%s %u", word, cycle);
    if (marker >= 0 && write(marker, text, length) != length)
        fail("trace", errno, NULL, "the trace takes no marks: %s", strerror(errno));
}

void graph_begin(unsigned cycle) { mark("cycle", cycle); }

void graph_end(unsigned cycle) { mark("done", cycle); }

void graph_finish(const char *path) {
    char block[65536];
    size_t length;
    set("tracing_on", "0");
    FILE *from = fopen(TRACEFS "trace", "re"), *to = fopen(path, "we");
    if (!from || !to)
        fail("trace", errno, NULL, "the trace cannot be copied to %s: %s", path, strerror(errno));
    while ((length = fread(block, 1, sizeof(block), from)) > 0)
        fwrite(block, 1, length, to);
    fclose(from);
    if (fclose(to))
        fail("trace", errno, NULL, "the trace cannot be copied to %s: %s", path, strerror(errno));
}
