// SPDX-License-Identifier: Apache-2.0
#include "refusal.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bpf/libbpf.h>

#define KEPT_BYTES 4096
#define PRODUCER "clang version "

static char words[KEPT_BYTES];
static char program[64];

// A verifier's log may be megabytes, and its end gives the reason: the beginning is dropped.
static void append(const char *text) {
    size_t used = strlen(words), more = strlen(text);

    if (more >= sizeof(words)) {
        text += more - (sizeof(words) - 1);
        more = sizeof(words) - 1;
    }
    if (used + more >= sizeof(words)) {
        size_t gone = used + more - (sizeof(words) - 1);

        memmove(words, words + gone, used - gone);
        used -= gone;
    }
    memcpy(words + used, text, more + 1);
}

static void note_program(const char *text) {
    char name[sizeof(program)];

    if (sscanf(text, "libbpf: prog '%63[^']'", name) == 1 && strstr(text, "BPF program load failed"))
        memcpy(program, name, sizeof(program));
}

void refusal_keep(const char *format, va_list arguments) {
    char *text;

    if (vasprintf(&text, format, arguments) < 0)
        return;
    note_program(text);
    append(text);
    free(text);
}

static int keep_warnings(enum libbpf_print_level level, const char *format, va_list arguments) {
    if (level == LIBBPF_WARN)
        refusal_keep(format, arguments);
    return 0;
}

void refusal_collect(void) { libbpf_set_print(keep_warnings); }

void refusal_forget(void) { words[0] = program[0] = '\0'; }

const char *refusal_words(void) { return words; }

const char *refusal_program(const char *otherwise) { return *program ? program : otherwise; }

// The log's statistics, its frame, and the error number said again.
static bool says_nothing(const char *line) {
    static const char *const STARTS[] = {
        "processed ", "insns processed ", "verification time ",     "stack depth ",
        "-- END ",    "libbpf: prog '",   "libbpf: failed to load "};

    for (size_t i = 0; i < sizeof(STARTS) / sizeof(*STARTS); i++)
        if (!strncmp(line, STARTS[i], strlen(STARTS[i])))
            return true;
    return !*line;
}

const char *refusal_reason(void) {
    static char reason[KEPT_BYTES];
    char copy[KEPT_BYTES];

    reason[0] = '\0';
    strcpy(copy, words);
    for (char *rest = copy, *line; (line = strsep(&rest, "\n"));)
        if (!says_nothing(line))
            strcpy(reason, line);
    return *reason ? reason : "without a word";
}

const char *refusal_producer(const void *object, size_t bytes) {
    static char named[112];
    const char *start = object, *end = start + bytes;
    const char *found = memmem(object, bytes, PRODUCER, strlen(PRODUCER));

    if (!found)
        return NULL;
    const char *first = found;
    while (first > start && first[-1])
        first--; // such as "Debian "
    int length = strnlen(first, end - first);
    snprintf(named, sizeof(named), "%.*s", length, first);
    return named;
}

const char *refusal_compiler(const void *object, size_t bytes) {
    static char words[128];
    const char *producer = refusal_producer(object, bytes);

    snprintf(words, sizeof(words), producer ? ", compiled by %s" : "", producer);
    return words;
}

const char *refusal_compiler_of(const char *path) {
    const char *named = "";
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd >= 0 && !fstat(fd, &status) && status.st_size) {
        void *object = mmap(NULL, status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);

        if (object != MAP_FAILED) {
            named = refusal_compiler(object, status.st_size);
            munmap(object, status.st_size);
        }
    }
    if (fd >= 0)
        close(fd);
    return named;
}
