// SPDX-License-Identifier: Apache-2.0
#include "module_file.h"
#include "fail.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static char name[NAME_MAX + 1];

static void name_module(const char *path) {
    const char *slash = strrchr(path, '/');

    snprintf(name, sizeof(name), "%s", slash ? slash + 1 : path);
    name[strcspn(name, ".")] = '\0';
    for (char *at = name; *at; at++)
        if (*at == '-')
            *at = '_'; // as the kernel calls it
}

static long insert(int fd) { return syscall(SYS_finit_module, fd, "", 0); }

static long take_out(void) { return syscall(SYS_delete_module, name, O_NONBLOCK); }

// A driver that was killed has left its module there: it goes first.
void module_insert(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    name_module(path);
    if (fd < 0 || (insert(fd) && (errno != EEXIST || take_out() || insert(fd))))
        fail("module", errno, NULL, "inserting %s: %s", path, strerror(errno));
    close(fd);
}

unsigned long long module_text(void) {
    char path[PATH_MAX];
    unsigned long long address;
    FILE *file;

    snprintf(path, sizeof(path), "/sys/module/%s/sections/.text", name);
    file = fopen(path, "re");
    if (!file || fscanf(file, "%llx", &address) != 1)
        fail("module", errno, NULL, "reading %s: %s", path, strerror(errno));
    fclose(file);
    return address;
}

void module_remove(const char *path) {
    name_module(path);
    if (take_out())
        fail("module", errno, NULL, "removing module %s: %s", name, strerror(errno));
}
