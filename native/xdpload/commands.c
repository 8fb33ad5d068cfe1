// SPDX-License-Identifier: Apache-2.0
#include "commands.h"
#include "actions.h"
#include "alternate.h"
#include "clock.h"
#include "fail.h"
#include "json.h"
#include "redirects.h"
#include "test_frame.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_RUNS 1000
#define MAX_FRAME_BYTES 3000
#define FCS_BYTES 4
#define SETUP_RUNS 3
#define SETUP_PACKETS 2

/* ---- testrun ---- */

// CPU time of this thread: finer than the whole nanoseconds the kernel returns, and free of the time other
// processes had the CPU.
static long long cpu_ns(void) { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }

struct frame {
    unsigned char bytes[MAX_FRAME_BYTES];
    unsigned int length; // without FCS
};

static bool has_room(const struct frame *frame) {
    return frame->length >= TEST_FRAME_MIN && frame->length <= MAX_FRAME_BYTES - FCS_BYTES;
}

// The bytes of a frame in hexadecimal digits, as many as fit.
static void read_bytes(const char *digits, struct frame *frame) {
    frame->length = 0;
    for (; frame->length < MAX_FRAME_BYTES; frame->length++, digits += 2)
        if (sscanf(digits, "%2hhx", &frame->bytes[frame->length]) != 1)
            return;
}

// A frame is its size with FCS, filled as a test frame is, or 0x and its bytes without FCS.
static bool read_frame(const char *text, struct frame *frame) {
    if (!strncmp(text, "0x", 2)) {
        read_bytes(text + 2, frame);
        return has_room(frame) && strlen(text + 2) == 2 * frame->length;
    }
    char *end;
    frame->length = strtoul(text, &end, 10) - FCS_BYTES;
    if (*end || !has_room(frame))
        return false;
    fill_test_frame(frame->bytes, frame->length);
    return true;
}

// One BPF_PROG_TEST_RUN of `repeat` packets: its CPU time, or -errno.
static long long run_once(const struct program *program, const struct frame *frame, unsigned int repeat,
                          unsigned int *retval) {
    LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = frame->bytes, .data_size_in = frame->length,
                .repeat = repeat);
    long long start = cpu_ns();
    int error = bpf_prog_test_run_opts(program->fd, &options);
    long long elapsed = cpu_ns() - start;
    *retval = options.retval;
    return error ? error : elapsed;
}

// What the system call costs beside its packets, some 200 us: the shortest of some runs of two packets. From
// two on, the kernel also patches its XDP dispatcher and waits for all CPUs, some 10 ms: hence asked once.
static long long setup_ns(const struct program *program, const struct frame *frame) {
    static long long least;
    unsigned int retval;
    for (int i = least ? SETUP_RUNS : 0; i < SETUP_RUNS && least >= 0; i++) {
        long long elapsed = run_once(program, frame, SETUP_PACKETS, &retval);
        least = !least || elapsed < least ? elapsed : least;
    }
    return least;
}

// Runs of `repeat` packets each, ns per packet; the last run's time, or a negative errno where the kernel
// refuses. One or two packets are given with all that the system call costs.
static long long run_many(const struct program *program, const struct frame *frame, unsigned int repeat,
                          unsigned int runs, double *ns, unsigned int *retval) {
    bool subtract = repeat > SETUP_PACKETS;
    long long setup = subtract ? setup_ns(program, frame) : 0;
    long long elapsed = setup;
    for (unsigned int run = 0; run < runs && elapsed >= 0; run++) {
        elapsed = run_once(program, frame, repeat, retval);
        ns[run] = (double)(elapsed - setup) / (subtract ? repeat - SETUP_PACKETS : repeat);
    }
    return elapsed;
}

#define ROUNDS 8

// A frame as the program left it; its length without FCS, or 0 where it left none that fits.
static unsigned int run_out(const struct program *program, const struct frame *in, struct frame *out) {
    LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = in->bytes, .data_size_in = in->length,
                .data_out = out->bytes, .data_size_out = sizeof(out->bytes), .repeat = 1);
    out->length = 0;
    if (!bpf_prog_test_run_opts(program->fd, &options))
        out->length = options.data_size_out;
    return options.retval;
}

// A test run repeats on one buffer: from its second packet on the program sees what it made of the first.
// Says what is another then, or NULL. A program that decides by chance or time does not answer alike 8 times.
static const char *changes_on_repeat(const struct program *program, const struct frame *frame) {
    static struct frame once, twice;
    unsigned int first = run_out(program, frame, &once);
    if (once.length && once.length != frame->length)
        return "the program changes the frame's length";
    for (int round = 0; round < ROUNDS && has_room(&once); round++) {
        unsigned int again = run_out(program, &once, &twice);
        if (again == first || run_out(program, frame, &twice) != first)
            return NULL;
    }
    return has_room(&once) ? "the program decides another thing of the frame that it made" : NULL;
}

static void testrun(const struct program *program, char *arguments) {
    static struct frame frame;
    char text[2 * MAX_FRAME_BYTES + 3];
    unsigned int repeat, runs, retval = 0;
    double ns[MAX_RUNS];
    if (sscanf(arguments, "%6002s %u %u", text, &repeat, &runs) != 3 || !repeat || !runs || runs > MAX_RUNS ||
        !read_frame(text, &frame)) {
        complain("testrun", EINVAL,
                 "testrun takes FRAME (its size, %d to %d, or 0x and its bytes) REPEAT RUNS (1 to %d)",
                 TEST_FRAME_MIN + FCS_BYTES, MAX_FRAME_BYTES, MAX_RUNS);
        return;
    }
    const char *changed = repeat > SETUP_PACKETS ? changes_on_repeat(program, &frame) : NULL;
    if (changed) {
        complain("testrun", EOPNOTSUPP, "BPF_PROG_TEST_RUN repeats on one buffer, and %s", changed);
        return;
    }
    long long result = run_many(program, &frame, repeat, runs, ns, &retval);
    if (result < 0) {
        complain("testrun", -result, "BPF_PROG_TEST_RUN was refused: %s", error_words(-result));
        return;
    }
    json_begin("testrun");
    json_integer("frame_bytes", frame.length + FCS_BYTES);
    json_integer("repeat", repeat);
    json_integer("retval", retval);
    json_open_array("ns");
    for (unsigned int run = 0; run < runs; run++)
        json_decimal(NULL, ns[run], 3);
    json_close();
    json_end();
}

/* ---- the counter of counting builds ---- */

static const struct bpf_map *count_map(const struct program *program) {
    const struct bpf_map *map = bpf_object__find_map_by_name(program->object, "xdplab_count");
    if (!map)
        map = bpf_object__find_map_by_name(program->object, ".data.xdplab_count");
    if (!map || bpf_map__value_size(map) != sizeof(uint64_t)) {
        complain("count", ENOENT, "the program has no map xdplab_count: it is not a counting build");
        return NULL;
    }
    return map;
}

static size_t count_copies(const struct bpf_map *map) {
    return bpf_map__type(map) == BPF_MAP_TYPE_PERCPU_ARRAY ? libbpf_num_possible_cpus() : 1;
}

static void count(const struct program *program, char *arguments) {
    (void)arguments;
    const struct bpf_map *map = count_map(program);
    if (!map)
        return;
    size_t copies = count_copies(map);
    uint64_t *values = calloc(copies, sizeof(*values)), sum = 0;
    unsigned int key = 0;
    if (!values || bpf_map_lookup_elem(bpf_map__fd(map), &key, values)) {
        complain("count", errno, "map %s cannot be read", bpf_map__name(map));
    } else {
        for (size_t i = 0; i < copies; i++)
            sum += values[i];
        json_begin("count");
        json_integer("value", sum);
        json_end();
    }
    free(values);
}

static void reset(const struct program *program, char *arguments) {
    (void)arguments;
    const struct bpf_map *map = count_map(program);
    if (!map)
        return;
    uint64_t *zeroes = calloc(count_copies(map), sizeof(*zeroes));
    unsigned int key = 0;
    if (!zeroes || bpf_map_update_elem(bpf_map__fd(map), &key, zeroes, BPF_ANY)) {
        complain("reset", errno, "map %s cannot be written", bpf_map__name(map));
    } else {
        json_begin("reset");
        json_end();
    }
    free(zeroes);
}

/* ---- what the program decided ---- */

static void decided(const struct program *program, char *arguments) {
    unsigned long long sums[ACTIONS];
    (void)program;
    (void)arguments;
    int error = actions_read(sums);
    if (error) {
        complain("decided", -error,
                 "what the program decides is not counted: it was loaded without --count-actions");
        return;
    }
    json_begin("decided");
    for (int action = 0; action < ACTIONS; action++)
        json_integer(action_names[action], sums[action]);
    redirects_print();
    json_end();
}

/* ---- the kernel's own statistics ---- */

static void bpf_stats(const struct program *program, char *arguments) {
    static int fd = -1; // the kernel counts for as long as this is open
    (void)program;
    bool enable = !strcmp(arguments, "on");
    if (!enable && strcmp(arguments, "off")) {
        complain("bpf_stats", EINVAL, "bpf_stats takes on or off");
        return;
    }
    if (enable && fd < 0)
        fd = bpf_enable_stats(BPF_STATS_RUN_TIME);
    if (enable && fd < 0) {
        complain("bpf_stats", errno, "BPF run-time statistics cannot be enabled: %s", error_words(errno));
        return;
    }
    if (!enable && fd >= 0) {
        close(fd);
        fd = -1;
    }
    json_begin("bpf_stats");
    json_bool("enabled", enable);
    json_end();
}

static void runstats(const struct program *program, char *arguments) {
    (void)arguments;
    struct bpf_prog_info info = {};
    int error = program_info(program, &info);
    if (error) {
        complain("runstats", -error, "the program cannot be read back: %s", error_words(-error));
        return;
    }
    json_begin("runstats");
    json_integer("run_time_ns", info.run_time_ns);
    json_integer("run_cnt", info.run_cnt);
    json_end();
}

#define COST_RUNS 20000

/* The time that the statistics report for an empty program. Its runs count like those of any program. */
static int run_nothing(int program, struct bpf_prog_info *info) {
    unsigned char frame[ETH_ZLEN] = {0};
    unsigned int length = sizeof(*info);
    LIBBPF_OPTS(bpf_test_run_opts, run, .data_in = frame, .data_size_in = sizeof(frame), .repeat = COST_RUNS);
    int error = bpf_prog_test_run_opts(program, &run);

    return error ?: bpf_obj_get_info_by_fd(program, info, &length);
}

static void stats_cost(const struct program *program, char *arguments) {
    const struct bpf_insn nothing[] = {
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = XDP_PASS},
        {.code = BPF_JMP | BPF_EXIT},
    };
    struct bpf_prog_info info = {};

    (void)program;
    (void)arguments;
    int fd = bpf_prog_load(BPF_PROG_TYPE_XDP, "xdplab_nothing", "GPL", nothing, 2, NULL);
    int error = fd < 0 ? fd : run_nothing(fd, &info);
    if (fd >= 0)
        close(fd);
    if (error || !info.run_cnt) {
        complain("stats_cost", error ? -error : ENODATA, "the statistics' own cost cannot be measured: %s",
                 error ? error_words(-error) : "they are not switched on");
        return;
    }
    json_begin("stats_cost");
    json_integer("run_time_ns", info.run_time_ns);
    json_integer("run_cnt", info.run_cnt);
    json_end();
}

/* ---- dump ---- */

static void write_image(const char *image, const char *path, const void *bytes, size_t length) {
    FILE *file = fopen(path, "wb");
    bool whole = file && fwrite(bytes, 1, length, file) == length;
    if (!file || fclose(file) || !whole) {
        complain("dump", errno, "%s cannot be written", path);
        return;
    }
    json_begin("dump");
    json_string("image", image);
    json_string("file", path);
    json_integer("bytes", length);
    json_end();
}

static void dump(const struct program *program, char *arguments) {
    char image[8] = "", path[4096] = "";
    sscanf(arguments, "%7s %4095[^\n]", image, path);
    bool jited = !strcmp(image, "jited");
    if ((!jited && strcmp(image, "xlated")) || !*path) {
        complain("dump", EINVAL, "dump takes xlated or jited and a file name");
        return;
    }
    struct bpf_prog_info info = {};
    if (program_info(program, &info)) {
        complain("dump", errno, "the program cannot be read back");
        return;
    }
    size_t length = jited ? info.jited_prog_len : info.xlated_prog_len;
    void *bytes = calloc(1, length + 1);
    info = (struct bpf_prog_info){};
    if (jited) {
        info.jited_prog_insns = (unsigned long)bytes;
        info.jited_prog_len = length;
    } else {
        info.xlated_prog_insns = (unsigned long)bytes;
        info.xlated_prog_len = length;
    }
    int error = bytes ? program_info(program, &info) : -ENOMEM;
    // The kernel zeroes the pointer where kernel.kptr_restrict or lockdown keeps the image to itself.
    if (error || !length || !(jited ? info.jited_prog_insns : info.xlated_prog_insns))
        complain("dump", error ? -error : EPERM, "the kernel does not show the %s image", image);
    else
        write_image(image, path, bytes, length);
    free(bytes);
}

/* ---- the table ---- */

static const struct {
    const char *name;
    void (*run)(const struct program *program, char *arguments);
} commands[] = {
    {"testrun", testrun},     {"count", count},         {"reset", reset},           {"dump", dump},
    {"runstats", runstats},   {"bpf_stats", bpf_stats}, {"stats_cost", stats_cost}, {"decided", decided},
    {"alternate", alternate},
};

void run_command(const struct program *program, char *line) {
    line[strcspn(line, "\r\n")] = '\0';
    size_t length = strcspn(line, " ");
    char *arguments = line + length + (line[length] == ' ');
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (strlen(commands[i].name) == length && !strncmp(commands[i].name, line, length)) {
            commands[i].run(program, arguments);
            return;
        }
    }
    complain("command", EINVAL, "there is no command %s", line);
}
