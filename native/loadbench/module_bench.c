// SPDX-License-Identifier: Apache-2.0
#include "bench.h"
#include "clock.h"
#include "fail.h"
#include "json.h"
#include "network.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PARAMETERS "interface=" NETWORK_INTERFACE

struct image {
    const char *path;
    char name[64]; // the kernel's own: of the file, without .ko, - as _
    void *bytes;
    size_t size;
};

struct cycle {
    long long read_ns, init_ns, delete_ns;
};

static struct cycle cycles[MOST_REPETITIONS];

static void name_module(struct image *image) {
    const char *base = strrchr(image->path, '/');
    snprintf(image->name, sizeof(image->name), "%s", base ? base + 1 : image->path);
    char *ending = strstr(image->name, ".ko");
    if (!ending)
        fail("open", 0, NULL, "%s is not named NAME.ko", image->path);
    *ending = '\0';
    for (char *at = image->name; *at; at++)
        if (*at == '-')
            *at = '_';
}

static void read_image(struct image *image) {
    struct stat status;
    int fd = open(image->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) || !(image->bytes = malloc(status.st_size)) ||
        read(fd, image->bytes, status.st_size) != status.st_size)
        fail("open", errno, NULL, "%s cannot be read: %s", image->path, strerror(errno));
    image->size = status.st_size;
    close(fd);
}

static void insert(const struct image *image) {
    if (syscall(__NR_init_module, image->bytes, image->size, PARAMETERS))
        fail("init_module", errno, NULL, "%s is refused: %s", image->name, strerror(errno));
}

static void delete (const struct image *image) {
    if (syscall(__NR_delete_module, image->name, O_NONBLOCK))
        fail("delete_module", errno, NULL, "%s stays: %s", image->name, strerror(errno));
}

static void run_cycle(struct image *image, unsigned rank) {
    long long start = now_ns();
    read_image(image);
    long long read = now_ns();
    bench_begin(rank);
    long long before = now_ns();
    insert(image);
    long long after = now_ns();
    bench_end(rank);
    cycles[rank] = (struct cycle){read - start, after - before, 0};
    start = now_ns();
    delete (image);
    cycles[rank].delete_ns = now_ns() - start;
    free(image->bytes);
}

static long long attribute(const struct image *image, const char *name) {
    char path[160];
    long long value = UNKNOWN;
    snprintf(path, sizeof(path), "/sys/module/%s/%s", image->name, name);
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%lld", &value) != 1)
        value = UNKNOWN;
    if (file)
        fclose(file);
    return value;
}

// How large it is in the kernel; an insertion of its own, which is not timed.
static void print_sizes(struct image *image) {
    read_image(image);
    insert(image);
    json_begin("module");
    json_string("name", image->name);
    json_known("core_bytes", attribute(image, "coresize"));
    json_known("init_bytes", attribute(image, "initsize"));
    json_end();
    delete (image);
    free(image->bytes);
}

void module_bench(const char *object) {
    struct image image = {.path = object};
    name_module(&image);
    network_make();
    print_sizes(&image);
    unsigned done = 0;
    for (; bench_next(done); done++)
        run_cycle(&image, done);
    for (unsigned rank = 0; rank < done; rank++) {
        json_begin("cycle");
        json_known("rank", rank);
        json_known("read_ns", cycles[rank].read_ns);
        json_known("init_ns", cycles[rank].init_ns);
        json_known("delete_ns", cycles[rank].delete_ns);
        json_end();
    }
}
