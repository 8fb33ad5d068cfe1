// SPDX-License-Identifier: Apache-2.0
#include "testrun.h"
#include "actions.h"
#include "attach.h"
#include "clock.h"
#include "dispatcher.h"
#include "fail.h"
#include "frame_sizes.h"
#include "json.h"
#include "records.h"
#include "test_frame.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/pkt_cls.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_RUNS 1000
#define MAX_LEFT_BYTES 16384 // room for a frame that the program made longer
#define FCS_BYTES 4
#define SETUP_RUNS 3
#define SETUP_PACKETS 2
#define MAX_LINE (2 * MOST_FRAME_BYTES + 32)
#define MAX_FRAMES 32768
#define EMPTY_RUNS 5
#define EMPTY_PACKETS 20000

struct asked {
    unsigned char *frame;
    unsigned length; // without FCS
    unsigned repeat;
    unsigned runs;
    union {
        struct xdp_md xdp;
        struct __sk_buff tc;
    } port;
    unsigned port_bytes; // 0: without a port
};

// ---- what is asked ----

static int digit(char text) {
    const char *digits = "0123456789abcdef", *found = text ? strchr(digits, text) : NULL;
    return found ? (int)(found - digits) : -1;
}

// The bytes of a frame in hexadecimal digits, as many as fit; returns their number.
static unsigned read_bytes(const char *digits, unsigned char *bytes) {
    unsigned length = 0;
    for (; length < MOST_FRAME_BYTES && digit(digits[0]) >= 0 && digit(digits[1]) >= 0; length++, digits += 2)
        bytes[length] = digit(digits[0]) << 4 | digit(digits[1]);
    return length;
}

// Allocates the frame.
static bool read_frame(const char *text, struct asked *asked) {
    unsigned char bytes[MOST_FRAME_BYTES];
    bool given = !strncmp(text, "0x", 2);
    char *end = NULL;
    asked->length = given ? read_bytes(text + 2, bytes) : strtoul(text, &end, 10) - FCS_BYTES;
    if (asked->length < TEST_FRAME_MIN || asked->length > MOST_FRAME_BYTES - FCS_BYTES)
        return false;
    if (given ? strlen(text + 2) != 2 * asked->length : *end)
        return false;
    if (!given)
        fill_test_frame(bytes, asked->length);
    asked->frame = malloc(asked->length);
    if (asked->frame)
        memcpy(asked->frame, bytes, asked->length);
    return asked->frame;
}

// Without a port the kernel's frames come from lo.
static void read_port(const struct program *program, unsigned queue, struct asked *asked) {
    const char *interface = attached_interface();
    unsigned ifindex = interface ? if_nametoindex(interface) : 0;
    memset(&asked->port, 0, sizeof(asked->port));
    if (program->type == BPF_PROG_TYPE_XDP) {
        asked->port.xdp =
            (struct xdp_md){.data_end = asked->length, .ingress_ifindex = ifindex, .rx_queue_index = queue};
        asked->port_bytes = sizeof(asked->port.xdp);
    } else { // which takes no queue
        asked->port.tc.ifindex = asked->port.tc.ingress_ifindex = ifindex;
        asked->port_bytes = sizeof(asked->port.tc);
    }
    if (!interface)
        asked->port_bytes = 0;
}

static bool read_asked(const struct program *program, const char *arguments, struct asked *asked) {
    char text[MAX_LINE];
    unsigned queue = 0;
    if (strlen(arguments) >= sizeof(text) ||
        sscanf(arguments, "%s %u %u %u", text, &asked->repeat, &asked->runs, &queue) < 3 || !asked->repeat ||
        !asked->runs || asked->runs > MAX_RUNS || !read_frame(text, asked)) {
        complain(
            "testrun", EINVAL,
            "testrun takes FRAME (its size, %d to %d, or 0x and its bytes) REPEAT RUNS (1 to %d) [QUEUE]",
            TEST_FRAME_MIN + FCS_BYTES, MOST_FRAME_BYTES, MAX_RUNS);
        return false;
    }
    read_port(program, queue, asked);
    return true;
}

// ---- many packets in one buffer ----

// CPU time of this thread: finer than the whole nanoseconds the kernel returns, and free of the time other
// processes had the CPU.
static long long cpu_ns(void) { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }

static struct bpf_test_run_opts options_of(const struct asked *asked, unsigned repeat) {
    LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = asked->frame, .data_size_in = asked->length,
                .repeat = repeat);
    if (asked->port_bytes) {
        options.ctx_in = &asked->port;
        options.ctx_size_in = asked->port_bytes;
    }
    return options;
}

// Kernels before 5.14 do not take a port.
static void try_port(const struct program *program, struct asked *asked) {
    struct bpf_test_run_opts options = options_of(asked, 1);
    if (asked->port_bytes && bpf_prog_test_run_opts(program->fd, &options) == -EINVAL)
        asked->port_bytes = 0;
}

// One BPF_PROG_TEST_RUN of `repeat` packets: its CPU time, or -errno.
static long long run_once(const struct program *program, const struct asked *asked, unsigned repeat,
                          unsigned *retval) {
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
    unsigned retval;
    for (int i = least ? SETUP_RUNS : 0; i < SETUP_RUNS && least >= 0; i++) {
        long long elapsed = run_once(program, asked, SETUP_PACKETS, &retval);
        least = !least || elapsed < least ? elapsed : least;
    }
    return least;
}

// Runs of `repeat` packets each, ns per packet; the last run's time, or a negative errno where the kernel
// refuses. One or two packets are given with all that the system call costs.
static long long run_many(const struct program *program, const struct asked *asked, double *ns,
                          unsigned *retval) {
    bool subtract = asked->repeat > SETUP_PACKETS;
    long long setup = subtract ? setup_ns(program, asked) : 0;
    long long elapsed = setup;
    for (unsigned run = 0; run < asked->runs && elapsed >= 0; run++) {
        elapsed = run_once(program, asked, asked->repeat, retval);
        ns[run] = (double)(elapsed - setup) / (subtract ? asked->repeat - SETUP_PACKETS : asked->repeat);
    }
    return elapsed;
}

static void refuse(long long error) {
    if (error == ETIME) {
        records_unread();
        return;
    }
    complain("testrun", error, "BPF_PROG_TEST_RUN was refused: %s", error_words(error));
}

static void print_runs(const char *key, const double *ns, unsigned runs) {
    json_open_array(key);
    for (unsigned run = 0; run < runs; run++)
        json_decimal(NULL, ns[run], 3);
    json_close();
}

static void print_testrun(const struct asked *asked, const double *ns, unsigned retval) {
    json_begin("testrun");
    json_integer("frame_bytes", asked->length + FCS_BYTES);
    json_integer("repeat", asked->repeat);
    json_integer("retval", retval);
    json_string("port", asked->port_bytes ? attached_interface() : NULL);
    print_runs("ns", ns, asked->runs);
    json_end();
}

// Its kfuncs take a test frame for one of their driver and read what lies behind it, and not all kernels
// refuse that.
static bool is_bound(const struct program *program) {
    if (program->device)
        complain("testrun", EINVAL,
                 "BPF_PROG_TEST_RUN has no frames of a driver, which a program bound to a "
                 "device needs");
    return program->device;
}

void testrun(const struct program *program, char *arguments) {
    struct asked asked = {};
    unsigned retval = 0;
    double ns[MAX_RUNS];
    if (read_asked(program, arguments, &asked) && !is_bound(program)) {
        try_port(program, &asked);
        long long result = run_many(program, &asked, ns, &retval);
        if (result < 0)
            refuse(-result);
        else
            print_testrun(&asked, ns, retval);
    }
    free(asked.frame);
}

// ---- one packet a call: each is a fresh frame ----

static struct asked *test_frames;
static unsigned frame_count;

// Reads as many lines as there are frames, also behind one that is wrong: they are no commands.
static bool read_frames(const struct program *program, unsigned count) {
    char line[MAX_LINE], text[MAX_LINE];
    bool all = true;
    for (unsigned i = 0; i < count; i++) {
        struct asked *asked = &test_frames[i];
        unsigned queue;
        all &= fgets(line, sizeof(line), stdin) && sscanf(line, "%s %u", text, &queue) == 2 &&
               read_frame(text, asked);
        if (all)
            read_port(program, queue, asked);
    }
    return all;
}

static void forget_frames(void) {
    for (unsigned i = 0; i < frame_count; i++)
        free(test_frames[i].frame);
    free(test_frames);
    test_frames = NULL;
    frame_count = 0;
}

void frames(const struct program *program, char *arguments) {
    unsigned count = strtoul(arguments, NULL, 10);
    forget_frames();
    test_frames = count && count <= MAX_FRAMES ? calloc(count, sizeof(*test_frames)) : NULL;
    frame_count = test_frames ? count : 0;
    if (!test_frames || !read_frames(program, count)) {
        forget_frames();
        complain("testrun", EINVAL, "frames takes their number (1 to %d), and a line FRAME QUEUE of each",
                 MAX_FRAMES);
        return;
    }
    if (is_bound(program))
        return;
    try_port(program, &test_frames[0]);
    for (unsigned i = 0; i < count; i++)
        test_frames[i].port_bytes = test_frames[0].port_bytes;
    json_begin("frames");
    json_integer("count", count);
    json_string("port", test_frames[0].port_bytes ? attached_interface() : NULL);
    json_end();
}

struct outcomes {
    unsigned long long actions[ACTIONS];
    unsigned changed;
};

// What XDP calls what the program returned: a packet that tc redirects is one that XDP sends back.
static unsigned action_of(const struct program *program, unsigned returned) {
    if (program->type == BPF_PROG_TYPE_XDP)
        return returned < ACTIONS - 1 ? returned : ACTIONS - 1;
    switch ((int)returned) {
    case TC_ACT_UNSPEC:
    case TC_ACT_OK:
        return XDP_PASS;
    case TC_ACT_SHOT:
        return XDP_DROP;
    case TC_ACT_REDIRECT:
        return XDP_TX;
    default:
        return ACTIONS - 1;
    }
}

// The time of one packet by the kernel's clock around it, or -errno. `outcomes` may be NULL.
static long long run_fresh(const struct program *program, const struct asked *asked,
                           struct outcomes *outcomes) {
    static unsigned char left[MAX_LEFT_BYTES];
    struct bpf_test_run_opts options = options_of(asked, 1);
    options.data_out = left;
    options.data_size_out = sizeof(left);
    int error = bpf_prog_test_run_opts(program->fd, &options);
    if (error)
        return error;
    if (outcomes) {
        outcomes->actions[action_of(program, options.retval)]++;
        outcomes->changed +=
            options.data_size_out != asked->length || memcmp(left, asked->frame, asked->length);
    }
    return options.duration;
}

// All frames in turn, so many times: the mean of a packet in ns, or -errno.
static double run_rounds(const struct program *program, unsigned rounds, struct outcomes *outcomes) {
    long long sum = 0;
    for (unsigned packet = 0; packet < rounds * frame_count; packet++) {
        long long ns =
            records_make_room() ?: run_fresh(program, &test_frames[packet % frame_count], outcomes);
        if (ns < 0)
            return ns;
        sum += ns;
    }
    return (double)sum / rounds / frame_count;
}

static bool read_rounds(const char *command, const char *arguments, unsigned *rounds, unsigned *runs) {
    *runs = 1;
    if (sscanf(arguments, "%u %u", rounds, runs) >= 1 && *rounds && *runs && *runs <= MAX_RUNS && frame_count)
        return true;
    complain("testrun", EINVAL, "%s takes ROUNDS RUNS (1 to %d), after frames", command, MAX_RUNS);
    return false;
}

static void print_actions(const struct outcomes *outcomes) {
    json_open_object("actions");
    for (int action = 0; action < ACTIONS; action++)
        json_integer(action_names[action], outcomes->actions[action]);
    json_close();
}

void outcomes(const struct program *program, char *arguments) {
    struct outcomes outcomes = {};
    unsigned rounds, runs;
    if (!read_rounds("outcomes", arguments, &rounds, &runs))
        return;
    double ns = run_rounds(program, rounds, &outcomes);
    if (ns < 0) {
        refuse(-(long long)ns);
        return;
    }
    json_begin("outcomes");
    json_decimal("call_ns", ns, 3);
    json_integer("changed", outcomes.changed);
    print_actions(&outcomes);
    json_end();
}

struct empty {
    struct program program;
    double ns; // per packet of many in one buffer
};

static int measure_empty(struct empty *empty) {
    struct asked many = test_frames[0];
    double ns[EMPTY_RUNS];
    unsigned retval;
    many.repeat = EMPTY_PACKETS;
    many.runs = EMPTY_RUNS;
    long long result = run_many(&empty->program, &many, ns, &retval);
    empty->ns = ns[0];
    for (int run = 1; run < EMPTY_RUNS; run++)
        empty->ns = ns[run] < empty->ns ? ns[run] : empty->ns;
    return result < 0 ? result : 0;
}

// An empty program, which is called as the attached one is: an XDP program by the kernel's dispatcher.
static int make_empty(struct empty *empty, enum bpf_prog_type type) {
    struct holder holder = NOT_HELD;
    int error = 0;
    empty->program.type = type;
    empty->program.fd = load_nothing(type, 0, 0);
    if (empty->program.fd < 0)
        return empty->program.fd;
    if (attached_interface() && type == BPF_PROG_TYPE_XDP && !hold(&holder, empty->program.fd))
        error = -errno;
    error = error ?: measure_empty(empty);
    if (error) {
        let_go(&holder);
        close(empty->program.fd);
        empty->program.fd = 0;
    }
    return error;
}

void fresh(const struct program *program, char *arguments) {
    static struct empty empty;
    struct outcomes outcomes = {};
    unsigned rounds, runs;
    double ns[MAX_RUNS], empty_ns[MAX_RUNS];
    if (!read_rounds("fresh", arguments, &rounds, &runs))
        return;
    double last = empty.program.fd > 0 ? 0 : make_empty(&empty, program->type);
    for (unsigned run = 0; run < runs && last >= 0; run++) {
        last = ns[run] = run_rounds(program, rounds, &outcomes);
        if (last >= 0)
            last = empty_ns[run] = run_rounds(&empty.program, rounds, NULL);
    }
    if (last < 0) {
        refuse(-(long long)last);
        return;
    }
    json_begin("fresh");
    print_runs("call_ns", ns, runs);
    print_runs("empty_call_ns", empty_ns, runs);
    json_decimal("empty_ns", empty.ns, 3);
    print_actions(&outcomes);
    json_end();
}
