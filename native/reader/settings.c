// SPDX-License-Identifier: Apache-2.0
#include "settings.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <net/if.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define MOST_BYTES 4096
#define LINES " | " // stands between the lines of a file

// These exist only in the machine's first network namespace. A lab of namespaces shows the one it was made in
// under this path (labs/netns/host.py).
#define MACHINES_OWN "/proc/sys/net/core/"
#define OUTSIDE_NET "/run/xdplab/outside-net"

static void print_file(FILE *out, const char *path) {
    char text[MOST_BYTES];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof(text));
    int error = errno;

    if (fd >= 0)
        close(fd);
    if (length < 0 && error == ENOENT)
        return;
    fprintf(out, "%s\t", path);
    if (length < 0)
        fprintf(out, "absent: %s", strerror(error));
    while (length > 0 && text[length - 1] == '\n')
        length--;
    for (ssize_t i = 0; i < length; i++)
        fprintf(out, text[i] == '\n' ? LINES : "%c", text[i] == '\t' ? ' ' : text[i]);
    fputc('\n', out);
}

static void print_files(FILE *out, const char *pattern) {
    glob_t found;

    if (!strpbrk(pattern, "*?[")) {
        print_file(out, pattern);
        return;
    }
    if (glob(pattern, 0, NULL, &found))
        return;
    for (size_t i = 0; i < found.gl_pathc; i++)
        print_file(out, found.gl_pathv[i]);
    globfree(&found);
}

static void print_all(FILE *out, char *const *patterns, bool machines_own) {
    for (; *patterns; patterns++)
        if (!strncmp(*patterns, MACHINES_OWN, strlen(MACHINES_OWN)) == machines_own)
            print_files(out, *patterns);
}

static void print_machines_own(FILE *out, char *const *patterns) {
    int there = open(OUTSIDE_NET, O_RDONLY | O_CLOEXEC);
    int here = there < 0 ? -1 : open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    bool entered = here >= 0 && !setns(there, CLONE_NEWNET);

    print_all(out, patterns, true);
    if (entered && setns(here, CLONE_NEWNET))
        _exit(1); // every later reading would be of another namespace
    if (here >= 0)
        close(here);
    if (there >= 0)
        close(there);
}

void print_settings(FILE *out, const char *device, char *const *patterns) {
    fprintf(out, "port.device\t%s\n", device);
    print_machines_own(out, patterns);
    print_all(out, patterns, false);
    print_port(out, device);
    print_programs(out, if_nametoindex(device));
}
