// SPDX-License-Identifier: Apache-2.0
#include "testrun.h"
#include "actions.h"
#include "attach.h"
#include "clock.h"
#include "dispatcher.h"
#include "fail.h"
#include "json.h"
#include "test_frame.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_RUNS 1000
#define MAX_FRAME_BYTES 3000
#define MAX_LEFT_BYTES 4096 // the kernel keeps a test frame in one page
#define FCS_BYTES 4
#define SETUP_RUNS 3
#define SETUP_PACKETS 2
#define EMPTY_RUNS 5
#define EMPTY_PACKETS 20000

struct asked {
    unsigned char frame[MAX_FRAME_BYTES];
    unsigned int length; // without FCS
    unsigned int repeat;
    unsigned int runs;
    struct xdp_md port;
    bool has_port;
};

/* ---- what is asked ---- */

// The bytes of a frame in hexadecimal digits, as many as fit.
static void read_bytes(const char *digits, struct asked *asked) {
    for (asked->length = 0; asked->length < MAX_FRAME_BYTES; asked->length++, digits += 2)
        if (sscanf(digits, "%2hhx", &asked->frame[asked->length]) != 1)
            return;
}

static bool has_room(const struct asked *asked) {
    return asked->length >= TEST_FRAME_MIN && asked->length <= MAX_FRAME_BYTES - FCS_BYTES;
}

static bool read_frame(const char *text, struct asked *asked) {
    if (!strncmp(text, "0x", 2)) {
        read_bytes(text + 2, asked);
        return has_room(asked) && strlen(text + 2) == 2 * asked->length;
    }
    char *end;
    asked->length = strtoul(text, &end, 10) - FCS_BYTES;
    if (*end || !has_room(asked))
        return false;
    fill_test_frame(asked->frame, asked->length);
    return true;
}

// Without a port the kernel's frames come from lo.
static void read_port(unsigned int queue, struct asked *asked) {
    const char *interface = attached_interface();
    asked->has_port = interface != NULL;
    if (interface)
        asked->port = (struct xdp_md){
            .data_end = asked->length, .ingress_ifindex = if_nametoindex(interface), .rx_queue_index = queue};
}

static bool read_asked(const char *command, const char *arguments, struct asked *asked) {
    char text[2 * MAX_FRAME_BYTES + 3];
    unsigned int queue = 0;
    if (sscanf(arguments, "%6002s %u %u %u", text, &asked->repeat, &asked->runs, &queue) < 3 ||
        !asked->repeat || !asked->runs || asked->runs > MAX_RUNS || !read_frame(text, asked)) {
        complain("testrun", EINVAL,
                 "%s takes FRAME (its size, %d to %d, or 0x and its bytes) REPEAT RUNS (1 to %d) [QUEUE]",
                 command, TEST_FRAME_MIN + FCS_BYTES, MAX_FRAME_BYTES, MAX_RUNS);
        return false;
    }
    read_port(queue, asked);
    return true;
}

/* ---- many packets in one buffer ---- */

// CPU time of this thread: finer than the whole nanoseconds the kernel returns, and free of the time other
// processes had the CPU.
static long long cpu_ns(void) { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }

static struct bpf_test_run_opts options_of(const struct asked *asked, unsigned int repeat) {
    LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = asked->frame, .data_size_in = asked->length,
                .repeat = repeat);
    if (asked->has_port) {
        options.ctx_in = &asked->port;
        options.ctx_size_in = sizeof(asked->port);
    }
    return options;
}

// Kernels before 5.14 do not take a port.
static void try_port(const struct program *program, struct asked *asked) {
    struct bpf_test_run_opts options = options_of(asked, 1);
    if (asked->has_port && bpf_prog_test_run_opts(program->fd, &options) == -EINVAL)
        asked->has_port = false;
}

// One BPF_PROG_TEST_RUN of `repeat` packets: its CPU time, or -errno.
static long long run_once(const struct program *program, const struct asked *asked, unsigned int repeat,
                          unsigned int *retval) {
    struct bpf_test_run_opts options = options_of(asked, repeat);
    long long start = cpu_ns();
    int error = bpf_prog_test_run_opts(program->fd, &options);
    long long elapsed = cpu_ns() - start;
    *retval = options.retval;
    return error ? error : elapsed;
}

// What the system call costs beside its packets, some 200 us: the shortest of some runs of two packets. From
// two on, the kernel also patches its XDP dispatcher and waits for all CPUs, some 10 ms: hence asked once.
static long long setup_ns(const struct program *program, const struct asked *asked) {
    static long long least;
    unsigned int retval;
    for (int i = least ? SETUP_RUNS : 0; i < SETUP_RUNS && least >= 0; i++) {
        long long elapsed = run_once(program, asked, SETUP_PACKETS, &retval);
        least = !least || elapsed < least ? elapsed : least;
    }
    return least;
}

// Runs of `repeat` packets each, ns per packet; the last run's time, or a negative errno where the kernel
// refuses. One or two packets are given with all that the system call costs.
static long long run_many(const struct program *program, const struct asked *asked, double *ns,
                          unsigned int *retval) {
    bool subtract = asked->repeat > SETUP_PACKETS;
    long long setup = subtract ? setup_ns(program, asked) : 0;
    long long elapsed = setup;
    for (unsigned int run = 0; run < asked->runs && elapsed >= 0; run++) {
        elapsed = run_once(program, asked, asked->repeat, retval);
        ns[run] = (double)(elapsed - setup) / (subtract ? asked->repeat - SETUP_PACKETS : asked->repeat);
    }
    return elapsed;
}

static void refuse(long long error) {
    complain("testrun", error, "BPF_PROG_TEST_RUN was refused: %s", error_words(error));
}

static void begin_answer(const char *type, const struct asked *asked) {
    json_begin(type);
    json_integer("frame_bytes", asked->length + FCS_BYTES);
    json_integer("repeat", asked->repeat);
    json_string("port", asked->has_port ? attached_interface() : NULL);
}

static void print_runs(const char *key, const double *ns, unsigned int runs) {
    json_open_array(key);
    for (unsigned int run = 0; run < runs; run++)
        json_decimal(NULL, ns[run], 3);
    json_close();
}

void testrun(const struct program *program, char *arguments) {
    static struct asked asked;
    unsigned int retval = 0;
    double ns[MAX_RUNS];
    if (!read_asked("testrun", arguments, &asked))
        return;
    try_port(program, &asked);
    long long result = run_many(program, &asked, ns, &retval);
    if (result < 0) {
        refuse(-result);
        return;
    }
    begin_answer("testrun", &asked);
    json_integer("retval", retval);
    print_runs("ns", ns, asked.runs);
    json_end();
}

/* ---- one packet a call: each is a fresh frame ---- */

struct outcome {
    unsigned long long actions[ACTIONS];
    unsigned int changed;
};

// The time of one packet by the kernel's clock around it, or -errno. `outcome` may be NULL.
static long long run_fresh(int program, const struct asked *asked, struct outcome *outcome) {
    static unsigned char left[MAX_LEFT_BYTES];
    struct bpf_test_run_opts options = options_of(asked, 1);
    options.data_out = left;
    options.data_size_out = sizeof(left);
    int error = bpf_prog_test_run_opts(program, &options);
    if (error)
        return error;
    if (outcome) {
        outcome->actions[options.retval < ACTIONS - 1 ? options.retval : ACTIONS - 1]++;
        outcome->changed +=
            options.data_size_out != asked->length || memcmp(left, asked->frame, asked->length);
    }
    return options.duration;
}

// The mean of `repeat` packets in ns, or -errno.
static double mean_fresh(int program, const struct asked *asked, struct outcome *outcome) {
    long long sum = 0;
    for (unsigned int i = 0; i < asked->repeat; i++) {
        long long ns = run_fresh(program, asked, outcome);
        if (ns < 0)
            return ns;
        sum += ns;
    }
    return (double)sum / asked->repeat;
}

void outcome(const struct program *program, char *arguments) {
    static struct asked asked;
    struct outcome outcome = {};
    if (!read_asked("outcome", arguments, &asked))
        return;
    try_port(program, &asked);
    double ns = mean_fresh(program->fd, &asked, &outcome);
    if (ns < 0) {
        refuse(-(long long)ns);
        return;
    }
    begin_answer("outcome", &asked);
    json_decimal("call_ns", ns, 3);
    json_integer("changed", outcome.changed);
    json_open_object("actions");
    for (int action = 0; action < ACTIONS; action++)
        json_integer(action_names[action], outcome.actions[action]);
    json_close();
    json_end();
}

struct empty {
    struct program program;
    double ns; // per packet of many in one buffer
};

static int measure_empty(struct empty *empty, const struct asked *asked) {
    static struct asked many;
    double ns[EMPTY_RUNS];
    unsigned int retval;
    many = *asked;
    many.repeat = EMPTY_PACKETS;
    many.runs = EMPTY_RUNS;
    long long result = run_many(&empty->program, &many, ns, &retval);
    empty->ns = ns[0];
    for (int run = 1; run < EMPTY_RUNS; run++)
        empty->ns = ns[run] < empty->ns ? ns[run] : empty->ns;
    return result < 0 ? result : 0;
}

// An empty program, which is called as the attached one is: by the kernel's dispatcher.
static int make_empty(struct empty *empty, const struct asked *asked) {
    struct holder holder = NOT_HELD;
    int error = 0;
    empty->program.fd = load_nothing(0);
    if (empty->program.fd < 0)
        return empty->program.fd;
    if (attached_interface() && !hold(&holder, empty->program.fd))
        error = -errno;
    error = error ?: measure_empty(empty, asked);
    if (error) {
        let_go(&holder);
        close(empty->program.fd);
        empty->program.fd = 0;
    }
    return error;
}

void fresh(const struct program *program, char *arguments) {
    static struct asked asked;
    static struct empty empty;
    double ns[MAX_RUNS], empty_ns[MAX_RUNS];
    if (!read_asked("fresh", arguments, &asked))
        return;
    try_port(program, &asked);
    double last = empty.program.fd ? 0 : make_empty(&empty, &asked);
    for (unsigned int run = 0; run < asked.runs && last >= 0; run++) {
        last = ns[run] = mean_fresh(program->fd, &asked, NULL);
        if (last >= 0)
            last = empty_ns[run] = mean_fresh(empty.program.fd, &asked, NULL);
    }
    if (last < 0) {
        refuse(-(long long)last);
        return;
    }
    begin_answer("fresh", &asked);
    print_runs("call_ns", ns, asked.runs);
    print_runs("empty_call_ns", empty_ns, asked.runs);
    json_decimal("empty_ns", empty.ns, 3);
    json_end();
}
