// SPDX-License-Identifier: Apache-2.0
// Within a window of seconds the rate of one program may change by tens of percent in tenths of a second,
// where another guest works on the same core. Two programs that are exchanged every few milliseconds share
// such a change. The kernel exchanges the program of a bpf_link without taking it off the interface.
#include "alternate.h"
#include "attach.h"
#include "clock.h"
#include "dispatcher.h"
#include "fail.h"
#include "json.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_PAIRS 10000
#define PRIORITY 7 // above the senders and the receivers of a lab that share this CPU
#define NS_PER_US 1000ull
#define LOOK_NS (1 * NS_PER_MS)      // between two looks whether frames come
#define BEGIN_NS (5 * NS_PER_SECOND) // the longest wait for the first frames
#define SILENT 50                    // so many slices without a frame in sequence: the sender has ended
#define SETTLE_SHARE 10              // one part in so many of a slice passes before it is counted

struct slice {
    bool other;
    uint64_t from, to; // ns of CLOCK_MONOTONIC
    uint64_t frames;
    uint64_t swap_ns;
};

// ---- slices ----

// Frames that the interface has received, by /proc/net/dev: it shows the network namespace of its reader.
static bool received(const char *interface, uint64_t *frames, uint64_t *when) {
    char line[512], name[64];
    uint64_t bytes;
    bool found = false;
    FILE *table = fopen("/proc/thread-self/net/dev", "r");
    uint64_t before = now_ns();

    while (table && !found && fgets(line, sizeof(line), table))
        found = sscanf(line, " %63[^:]: %" SCNu64 " %" SCNu64, name, &bytes, frames) == 3 &&
                !strcmp(name, interface);
    *when = before + (now_ns() - before) / 2;
    if (table)
        fclose(table);
    return found;
}

static bool traffic_begins(const char *interface) {
    uint64_t first, frames, when, until = now_ns() + BEGIN_NS;

    if (!received(interface, &first, &when))
        return false;
    do {
        sleep_until_ns(now_ns() + LOOK_NS);
        if (!received(interface, &frames, &when))
            return false;
    } while (frames == first && when < until);
    return frames != first;
}

static bool measure(struct slice *slice, const char *interface, int fd, uint64_t length_ns) {
    uint64_t before, start = now_ns();

    if (exchange_program(fd))
        return false;
    slice->swap_ns = now_ns() - start;
    sleep_until_ns(now_ns() + length_ns / SETTLE_SHARE);
    if (!received(interface, &before, &slice->from))
        return false;
    sleep_until_ns(slice->from + length_ns);
    if (!received(interface, &slice->frames, &slice->to))
        return false;
    slice->frames -= before;
    return true;
}

// splitmix64 (Steele, Lea and Flood 2014): one bit decides which of two goes first.
static bool toss(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (z ^ z >> 31) & 1;
}

static size_t measure_all(struct slice *slices, size_t pairs, const char *interface, const int fds[2],
                          uint64_t length_ns, uint64_t seed) {
    size_t done = 0;

    for (int silent = 0; done < 2 * pairs && silent < SILENT; done++) {
        bool first = done % 2 == 0;
        slices[done].other = first ? toss(&seed) : !slices[done - 1].other;
        if (!measure(&slices[done], interface, fds[slices[done].other], length_ns))
            break;
        silent = slices[done].frames ? 0 : silent + 1;
    }
    return done;
}

static void print(const struct slice *slices, size_t count, bool preempts) {
    json_begin("alternated");
    json_bool("preempts", preempts);
    json_open_array("slices");
    for (size_t i = 0; i < count; i++) {
        json_open_array(NULL);
        json_integer(NULL, slices[i].other);
        json_count(NULL, slices[i].from);
        json_count(NULL, slices[i].to);
        json_count(NULL, slices[i].frames);
        json_count(NULL, slices[i].swap_ns);
        json_close();
    }
    json_close();
    json_end();
}

static void run_turns(const struct program *program, int other, const char *interface, uint64_t slice_ns,
                      size_t pairs, uint64_t seed) {
    const struct sched_param above = {.sched_priority = PRIORITY}, usual = {0};
    struct slice *slices = calloc(2 * pairs, sizeof(*slices));

    if (!slices || !traffic_begins(interface)) {
        complain("alternate", slices ? ENODATA : ENOMEM, "%s received no frame", interface);
        free(slices);
        return;
    }
    bool preempts = !sched_setscheduler(0, SCHED_FIFO, &above);
    size_t done = measure_all(slices, pairs, interface, (int[]){program->fd, other}, slice_ns, seed);
    int refused = errno, error = exchange_program(program->fd);
    sched_setscheduler(0, SCHED_OTHER, &usual);
    if (error || !done)
        complain("alternate", error ? -error : refused, "the programs of %s cannot be exchanged: %s",
                 interface, error_words(error ? -error : refused));
    else
        print(slices, done, preempts);
    free(slices);
}

void alternate(const struct program *program, char *arguments) {
    const char *interface = attached_interface();
    unsigned id, slice_us, pairs;
    uint64_t seed;

    if (sscanf(arguments, "%u %u %u %" SCNu64, &id, &slice_us, &pairs, &seed) != 4 || !slice_us || !pairs ||
        pairs > MAX_PAIRS || !interface) {
        complain("alternate", EINVAL,
                 "alternate takes ID SLICE_US PAIRS (1 to %d) SEED of an attached program", MAX_PAIRS);
        return;
    }
    struct holder own = NOT_HELD, others = NOT_HELD;
    int other = bpf_prog_get_fd_by_id(id);
    if (other < 0)
        complain("alternate", errno, "program %u cannot be opened", id);
    else if (!hold(&own, program->fd) || !hold(&others, other))
        complain("alternate", errno, "programs cannot be held in the kernel's dispatcher: %s",
                 error_words(errno));
    else {
        json_begin("ready"); // the sender may begin
        json_end();
        run_turns(program, other, interface, slice_us * NS_PER_US, pairs, seed);
    }
    let_go(&own);
    let_go(&others);
    if (other >= 0)
        close(other);
}
