// SPDX-License-Identifier: Apache-2.0
// costdrive: in a guest that costplugin watches, sends frames to a loaded program between marks.
#include "application.h"
#include "describe.h"
#include "fail.h"
#include "frames.h"
#include "json.h"
#include "machine.h"
#include "marks.h"
#include "options.h"
#include "refusal.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ALONE = 5, PATH_INSTRUCTIONS = 2000, MOST_INSTRUCTIONS = 3500000 };

static int thread_named(const char *name) {
    char path[64], comm[32];

    for (int pid = 2; pid < 200; pid++) {
        snprintf(path, sizeof(path), "/proc/%d/comm", pid);
        FILE *file = fopen(path, "r");
        if (!file)
            continue;
        bool is_it = fgets(comm, sizeof(comm), file) && !strncmp(comm, name, strlen(name));
        fclose(file);
        if (is_it)
            return pid;
    }
    return 0;
}

// A tick that finds another task runnable would leave the rest of a softirq to ksoftirqd, beside this
// process; so nothing goes before it but ksoftirqd, which before 6.5 would otherwise keep all softirqs and
// never run.
static void set_priorities(void) {
    struct sched_param low = {.sched_priority = 1}, high = {.sched_priority = 10};
    int ksoftirqd = thread_named("ksoftirqd/0");

    if (sched_setscheduler(0, SCHED_FIFO, &low) ||
        (ksoftirqd && sched_setscheduler(ksoftirqd, SCHED_FIFO, &high)))
        fail("priorities", errno, NULL, "SCHED_FIFO is refused");
}

// The guest's clock ticks every four million instructions, and a window is to end before: a program of many
// instructions gets smaller ones, in which each frame is still sent equally often.
static unsigned window_of(const struct options *options, unsigned frames) {
    unsigned long long a_frame = program_cost(options->device_bound) + PATH_INSTRUCTIONS;
    unsigned window = options->window;

    while (2 * window * a_frame > MOST_INSTRUCTIONS && window % 2 == 0 && window / 2 % frames == 0)
        window /= 2;
    return window;
}

static void send_all(unsigned frames) {
    sender_send(frames);
    application_finish();
}

// A frame that comes alone: which cache lines it touches.
static void count_touched(void) {
    TOUCH;
    usleep(SWITCH_US);
    send_all(1);
    for (unsigned i = 0; i < ALONE; i++) {
        usleep(1);
        BEGIN;
        send_all(1);
        END;
    }
}

// QEMU 7.2 keeps the calls of an instruction whose helper an exception has left, or of a return, and they are
// gone when it translates anew: a helper that ends makes it forget them. Of arm64 only loads and stores have
// any.
static inline __attribute__((always_inline)) void end_touching(void) {
#ifdef __x86_64__
    unsigned eax = 0, ebx, ecx = 0, edx;

    asm volatile("cpuid" : "+a"(eax), "=b"(ebx), "+c"(ecx), "=d"(edx));
#endif
}

static void print_window(const char *type, unsigned frames) {
    json_begin(type);
    json_integer("frames", frames);
    json_end();
}

static void print_returned(unsigned frames, struct returned returned) {
    json_begin("returned");
    json_integer("frames", frames);
    json_integer("tx", returned.tx);
    json_integer("pass", returned.pass);
    json_end();
}

static void count(unsigned window, unsigned rounds, bool is_test_run) {
    SWITCH;
    usleep(SWITCH_US);
    send_all(2 * window);
    for (unsigned i = 0; i < 2 * rounds; i++) {
        usleep(1); // wakes with a tick: the next is four million instructions away
        BEGIN;
        send_all(i % 2 ? 2 * window : window);
        END;
    }
    struct returned returned = sender_returned();
    count_touched();
    end_touching();
    SWITCH;
    usleep(SWITCH_US);
    for (unsigned i = 0; i < 2 * rounds; i++)
        print_window("window", i % 2 ? 2 * window : window);
    for (unsigned i = 0; i < ALONE; i++)
        print_window("touched", 1);
    if (is_test_run)
        print_returned(2 * window, returned);
}

static const char *role_of(unsigned id, unsigned counted) {
    if (id == counted)
        return "program";
    if (id == sender_id())
        return "sender";
    return id == sink_id() ? "sink" : "other";
}

int main(int argc, char **argv) {
    struct options options;

    parse_options(&options, argc, argv);
    refusal_collect();
    struct frames frames = frames_read(options.frames);
    int program = bpf_prog_get_fd_by_id(options.program);
    if (program < 0)
        fail("program", errno, NULL, "there is no program %u", options.program);
    set_priorities();
    sender_open(&options, &frames, program);
    tell(MARK_ROOT, options.root);
    tell(MARK_PROGRAM, entry_of(program));
    if (options.application) {
        struct code_range code = application_open(options.application);
        tell(MARK_APPLICATION, code.start);
        tell(MARK_APPLICATION_END, code.end);
    }
    count(window_of(&options, frames.count), options.rounds, options.way == WAY_TEST_RUN);
    for (unsigned id = 0; !bpf_prog_get_next_id(id, &id);)
        describe(id, role_of(id, options.program));
    sender_close();
    return !json_flush();
}
