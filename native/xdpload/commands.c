// SPDX-License-Identifier: Apache-2.0
#include "commands.h"
#include "actions.h"
#include "alternate.h"
#include "attach.h"
#include "fail.h"
#include "json.h"
#include "records.h"
#include "redirects.h"
#include "tables.h"
#include "testrun.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- maps ---- */

static void fill(const struct program *program, char *arguments) {
    (void)arguments;
    if (!fill_tables(program, program->entries))
        return;
    json_begin("filled");
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

/* ---- another program in the place of this one ---- */

static void exchange(const struct program *program, char *arguments) {
    unsigned int id = strtoul(arguments, NULL, 10);
    (void)program;
    if (!attached_interface()) {
        complain("exchange", EINVAL, "no program is attached whose place another could take");
        return;
    }
    int fd = bpf_prog_get_fd_by_id(id);
    int error = fd < 0 ? -errno : exchange_program(fd);
    if (fd >= 0)
        close(fd);
    if (error) {
        complain("exchange", -error, "program %u cannot take the place of the attached one: %s", id,
                 error_words(-error));
        return;
    }
    json_begin("exchanged");
    json_integer("program_id", id);
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

#define COST_RUNS 5
#define COST_PACKETS 20000

/* The time that the statistics report for an empty program, whose runs count like those of any program: the
   least of some runs, as another task may take the CPU in one of them. */
static int run_nothing(int program, struct bpf_prog_info *least) {
    unsigned char frame[ETH_ZLEN] = {0};
    struct bpf_prog_info before = {}, after = {};
    int error = 0;
    for (int i = 0; i < COST_RUNS && !error; i++, before = after) {
        unsigned int length = sizeof(after);
        after = (struct bpf_prog_info){}; // what it says of the last time would ask for more
        LIBBPF_OPTS(bpf_test_run_opts, run, .data_in = frame, .data_size_in = sizeof(frame),
                    .repeat = COST_PACKETS);
        error = bpf_prog_test_run_opts(program, &run) ?: bpf_obj_get_info_by_fd(program, &after, &length);
        unsigned long long ns = after.run_time_ns - before.run_time_ns;
        if (!i || ns < least->run_time_ns) {
            least->run_time_ns = ns;
            least->run_cnt = after.run_cnt - before.run_cnt;
        }
    }
    return error;
}

static void stats_cost(const struct program *program, char *arguments) {
    struct bpf_prog_info info = {};

    (void)program;
    (void)arguments;
    int fd = load_nothing(0);
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
    {"testrun", testrun},     {"frames", frames},
    {"outcomes", outcomes},   {"fresh", fresh},
    {"count", count},         {"reset", reset},
    {"dump", dump},           {"runstats", runstats},
    {"bpf_stats", bpf_stats}, {"stats_cost", stats_cost},
    {"decided", decided},     {"records", records},
    {"alternate", alternate}, {"fill", fill},
    {"exchange", exchange},
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
