// SPDX-License-Identifier: Apache-2.0
// Calls one benchmark through one backend, with the same pace whatever the backend, and prints JSON lines.
#include "backend.h"
#include "bpf_image.h"
#include "evict.h"
#include "fail.h"
#include "json.h"
#include "marks.h"
#include "options.h"
#include "own.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

const void *state;
size_t state_bytes;

static const struct backend *const backends[] = {&bpf_backend, &module_backend, &user_backend};

static const struct backend *find_backend(const char *name) {
    for (size_t i = 0; i < sizeof(backends) / sizeof(*backends); i++)
        if (!strcmp(backends[i]->name, name))
            return backends[i];
    fail("start", 0, NULL, "there is no backend %s", name);
}

static void read_state(const char *path) {
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &status))
        fail("start", errno, NULL, "reading %s: %s", path, strerror(errno));
    state_bytes = status.st_size;
    state = state_bytes ? mmap(NULL, state_bytes, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    if (state == MAP_FAILED)
        fail("start", errno, NULL, "reading %s: %s", path, strerror(errno));
    close(fd);
}

// The whole run on the CPU where it began: a call elsewhere would find other caches.
static void stay_here(void) {
    cpu_set_t here;

    CPU_ZERO(&here);
    CPU_SET(sched_getcpu(), &here);
    if (sched_setaffinity(0, sizeof(here), &here))
        fail("start", errno, NULL, "staying on one CPU: %s", strerror(errno));
}

static void rest(void) {
    const struct timespec pause = {options.pause_us / 1000000, options.pause_us % 1000000 * 1000};

    if (options.pause_us)
        nanosleep(&pause, NULL);
}

static void print_call(unsigned index, const struct bench_record *record) {
    json_begin("call");
    json_count("index", index);
    json_count("begin_ns", record->begin);
    json_count("end_ns", record->end);
    json_count("result", record->result);
    json_end();
}

void print_code(unsigned long long start, unsigned long long bytes) {
    json_begin("code");
    json_count("start", start);
    json_count("bytes", bytes);
    json_end();
}

static void call_counted(const struct backend *backend, struct bench_record *record) {
    usleep(1); // wakes with a tick: the next is four million instructions away
    BEGIN_CALL;
    backend->call(record);
    END;
}

static void switch_counting(void) {
    if (options.counted) {
        SWITCH;
        usleep(SWITCH_US);
    }
}

// The calls follow each other, and are printed when all are done: printing would cool what they keep warm.
static void run(const struct backend *backend) {
    struct bench_record *records = calloc(options.calls, sizeof(*records));
    struct image image = backend->load();

    if (!records)
        fail("start", errno, NULL, "%u calls: %s", options.calls, strerror(errno));
    memset(records, 0, options.calls * sizeof(*records)); // every page is there before the first call

    json_begin("loaded");
    json_string("benchmark", options.benchmark);
    json_string("backend", backend->name);
    json_bool("cold", options.cold);
    json_count("cpu", sched_getcpu());
    print_image(image);
    switch_counting();
    for (unsigned i = 0; i < options.calls; i++) {
        records[i].input = options.input;
        rest();
        if (options.cold) {
            backend->unload();
            backend->load();
        }
        evict(options.evict_bytes);
        options.counted ? call_counted(backend, &records[i]) : backend->call(&records[i]);
    }
    switch_counting();
    if (options.counted)
        backend->print_code();
    for (unsigned i = 0; i < options.calls; i++)
        print_call(i, &records[i]);
    free(records);
    backend->unload();
    json_begin("end");
    json_count("calls", options.calls);
    json_end();
}

int main(int argument_count, char **arguments) {
    options_read(argument_count, arguments);
    json_hold(); // who reads along must not run while something is measured
    if (options.state)
        read_state(options.state);
    stay_here();
    if (!strncmp(options.backend, "own-", 4))
        own_run();
    else
        run(find_backend(options.backend));
    return !json_flush();
}
