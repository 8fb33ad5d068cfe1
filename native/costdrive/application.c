// SPDX-License-Identifier: Apache-2.0
#include "application.h"
#include "fail.h"
#include "json.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { FIRST_US = 4000, MOST_US = 4096000 };

static unsigned process;
static unsigned rest_us = FIRST_US;

static FILE *file_of(const char *format, const char *name) {
    char path[NAME_MAX + 64];

    snprintf(path, sizeof(path), format, process, name);
    return fopen(path, "r");
}

static void print_code(const char *path, const struct code_range *range, uint64_t offset) {
    json_begin("code");
    json_string("file", path);
    json_count("start", range->start);
    json_count("end", range->end);
    json_count("offset", offset);
    json_end();
}

struct code_range application_open(unsigned pid) {
    struct code_range found = {}, range;
    char line[PATH_MAX + 128], path[PATH_MAX];
    uint64_t offset;

    process = pid;
    FILE *maps = file_of("/proc/%u/%s", "maps");
    if (!maps)
        fail("application", errno, NULL, "there is no process %u", pid);
    while (fgets(line, sizeof(line), maps)) {
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " r-xp %" SCNx64 " %*s %*s %4095s", &range.start, &range.end,
                   &offset, path) != 4)
            continue;
        print_code(path, &range, offset);
        if (!found.end) // the program's is the first
            found = range;
    }
    fclose(maps);
    return found;
}

static bool sleeps(const char *thread) {
    char line[256] = "";
    FILE *file = file_of("/proc/%u/task/%s/stat", thread);

    if (!file)
        return false;
    fgets(line, sizeof(line), file);
    fclose(file);
    const char *state = strrchr(line, ')');
    return state && state[1] == ' ' && state[2] == 'S';
}

static bool all_sleep(void) {
    char path[64];
    bool asleep = true;

    snprintf(path, sizeof(path), "/proc/%u/task", process);
    DIR *threads = opendir(path);
    if (!threads)
        fail("application", errno, NULL, "the process %u has ended", process);
    for (struct dirent *one; (one = readdir(threads));)
        if (one->d_name[0] != '.' && !sleeps(one->d_name))
            asleep = false;
    closedir(threads);
    return asleep;
}

// It runs only while this process sleeps. A sleep is long enough that it is never interrupted by the end of
// one: the first, which nobody counts, finds out how long.
void application_finish(void) {
    if (!process)
        return;
    usleep(rest_us);
    while (!all_sleep()) {
        if (rest_us >= MOST_US)
            fail("application", ETIMEDOUT, NULL, "the application does not come to rest");
        rest_us *= 2;
        usleep(rest_us);
    }
}
