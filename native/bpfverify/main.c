// SPDX-License-Identifier: Apache-2.0
// A worker process goes through the objects. If one of them breaks it (a fault in libbpf, a deadline), its
// parent says so and starts another worker behind that object. No object ends the list.
#include "elf_file.h"
#include "fail.h"
#include "globals.h"
#include "json.h"
#include "libbpf_load.h"
#include "measure.h"
#include "options.h"
#include "raw_load.h"
#include "record.h"
#include "refusal.h"
#include "spawn.h"
#include "watch_load.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define LARGEST_OBJECT (256u << 20)

static void *read_file(const char *path, size_t *size, const char **wrong) {
    struct stat status;
    void *bytes = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &status))
        *wrong = strerror(errno);
    else if (!S_ISREG(status.st_mode) || status.st_size > LARGEST_OBJECT)
        *wrong = "not a file of at most 256 MiB";
    else if (!(bytes = malloc(status.st_size + 1)) || read(fd, bytes, status.st_size) != status.st_size)
        *wrong = "it cannot be read whole";
    else
        *size = status.st_size;
    if (fd >= 0)
        close(fd);
    return bytes;
}

static bool has_legacy_maps(const struct elf_file *elf) {
    for (size_t i = 1; i < elf->section_count; i++)
        if (!strncmp(elf_section_name(elf, i), "maps", 4))
            return true;
    return false;
}

// libbpf where it can; the raw loader for what libbpf 1.0 and later does not take.
static void verify_bytes(const char *path, const void *bytes, size_t size) {
    struct elf_file elf;
    char both[1600];
    const char *wrong = elf_open(&elf, bytes, size);
    if (wrong) {
        record_print_object(path, wrong);
        return;
    }
    record_compiler(refusal_producer(bytes, size));
    const char *refused = has_legacy_maps(&elf) ? "it has legacy maps" : libbpf_load(path, bytes, size);
    wrong = refused ? globals_missing(path) : NULL;
    if (refused && !wrong)
        wrong = raw_load(path, &elf, refused);
    if (wrong) {
        snprintf(both, sizeof(both), "%s (libbpf: %.1024s)", wrong, refused);
        record_print_object(path, both);
    }
}

static void verify_file(const char *path) {
    size_t size = 0;
    const char *wrong = NULL;
    void *bytes = read_file(path, &size, &wrong);
    alarm(object_deadline_s);
    if (wrong)
        record_print_object(path, wrong);
    else
        verify_bytes(path, bytes, size);
    alarm(0);
    free(bytes);
}

static void work(char **paths, int count, volatile int *at) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (effort.watch)
        watch_setup();
    for (; *at < count; (*at)++)
        verify_file(paths[*at]);
}

static void tell_end(const char *path, int status) {
    char message[128];
    int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (number == SIGALRM)
        snprintf(message, sizeof(message), "still not loaded after %u s", object_deadline_s);
    else
        snprintf(message, sizeof(message), "the loader broke on it (%s)",
                 number ? strsignal(number) : "it ended without a verdict");
    record_print_object(path, message);
}

static void allow_memory(void) {
    const struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_MEMLOCK, &all); // before 5.11 maps and programs are charged to it
}

// Each object takes megabytes for the kernel's BTF and gives them back. The process keeps them: page faults
// took a fifth of the time.
static void keep_memory(void) {
    mallopt(M_MMAP_THRESHOLD, 32 << 20); // the most that glibc takes
    mallopt(M_TRIM_THRESHOLD, 256 << 20);
}

int main(int argument_count, char **arguments) {
    if (argument_count > 1 && !strcmp(arguments[1], "--run"))
        return spawn(arguments + 2);
    int first = options_read(argument_count, arguments);
    int count = argument_count - first;
    volatile int *at = mmap(NULL, sizeof(*at), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        fail("start", errno, NULL, "no memory: %s", strerror(errno));
    allow_memory();
    keep_memory();
    refusal_collect();
    int status = 0;
    while (*at < count) {
        pid_t worker = fork();
        if (worker == 0) {
            work(arguments + first, count, at);
            _exit(!json_flush());
        }
        if (worker < 0 || waitpid(worker, &status, 0) < 0)
            fail("start", errno, NULL, "no worker process: %s", strerror(errno));
        if (*at < count) {
            tell_end(arguments[first + *at], status);
            (*at)++;
            status = 0;
        }
    }
    return status || !json_flush(); // 0: every line was written
}
