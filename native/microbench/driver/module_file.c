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

void module_insert(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || syscall(SYS_finit_module, fd, "", 0))
        fail(errno, "inserting %s", path);
    close(fd);
}

void module_remove(const char *path) {
    const char *slash = strrchr(path, '/');
    char name[NAME_MAX + 1];

    snprintf(name, sizeof(name), "%s", slash ? slash + 1 : path);
    name[strcspn(name, ".")] = '\0';
    for (char *at = name; *at; at++)
        if (*at == '-')
            *at = '_'; // as the kernel calls it
    if (syscall(SYS_delete_module, name, O_NONBLOCK))
        fail(errno, "removing module %s", name);
}
