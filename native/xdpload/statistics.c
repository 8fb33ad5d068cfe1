// SPDX-License-Identifier: Apache-2.0
// The kernel's own statistics of a program's runs.
#include "commands.h"
#include "fail.h"
#include "json.h"
#include "testrun.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <string.h>
#include <unistd.h>

void bpf_stats(const struct program *program, char *arguments) {
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

void runstats(const struct program *program, char *arguments) {
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

// The time that the statistics report for an empty program, whose runs count like those of any program: the
//    least of some runs, as another task may take the CPU in one of them.
static int run_nothing(int program, struct bpf_prog_info *least) {
    unsigned char frame[ETH_ZLEN] = {0};
    struct bpf_prog_info before = {}, after = {};
    int error = 0;
    for (int i = 0; i < COST_RUNS && !error; i++, before = after) {
        unsigned length = sizeof(after);
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

void stats_cost(const struct program *program, char *arguments) {
    struct bpf_prog_info info = {};

    (void)arguments;
    int fd = load_nothing(program->type, 0, 0);
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
