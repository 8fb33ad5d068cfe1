// SPDX-License-Identifier: Apache-2.0
// The limit xdpgen is measured against: live frames that are never written to, dropped when they come back.
// Usage: bare OBJECT INTERFACE CPU,… PRIORITY BATCH BYTES [clock]; sends until it is killed, one process for
// each CPU. With `clock`, each frame reads the clock when it is made and when it is back.
#include <err.h>
#include <limits.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

static struct bpf_object *open_object(const char *path) {
    struct bpf_object *object = bpf_object__open(path);
    struct bpf_program *program;

    bpf_object__for_each_program(program, object)
        bpf_program__set_type(program, BPF_PROG_TYPE_XDP); // its sections are named for ip(8)
    return object;
}

static int program(const struct bpf_object *object, const char *name) {
    return bpf_program__fd(bpf_object__find_program_by_name(object, name));
}

static int take_cpu(unsigned cpu, int priority) {
    struct sched_param fifo = {.sched_priority = priority};
    cpu_set_t cpus;

    CPU_ZERO(&cpus);
    CPU_SET(cpu, &cpus);
    return sched_setaffinity(0, sizeof(cpus), &cpus) || sched_setscheduler(0, SCHED_FIFO, &fifo);
}

static int send_frames(int fd, unsigned ifindex, unsigned batch, unsigned bytes) {
    static char frame[ETH_FRAME_LEN] = "\x02\x78\x64\x70\x00\x02\x02\x78\x64\x70\x00\x01\x88\xb5";
    struct xdp_md context = {.data_end = bytes, .ingress_ifindex = ifindex};
    LIBBPF_OPTS(bpf_test_run_opts, run, .data_in = frame, .data_size_in = bytes, .ctx_in = &context,
                .ctx_size_in = sizeof(context), .repeat = INT_MAX, .flags = BPF_F_TEST_XDP_LIVE_FRAMES,
                .batch_size = batch);

    return bpf_prog_test_run_opts(fd, &run);
}

int main(int argc, char **argv) {
    LIBBPF_OPTS(bpf_link_create_opts, native, .flags = XDP_FLAGS_DRV_MODE);
    const bool clock = argc == 8 && !strcmp(argv[7], "clock");
    struct bpf_object *object;
    unsigned ifindex;
    char *cpus;

    if (argc != 7 && !clock) {
        fprintf(stderr, "usage: bare OBJECT INTERFACE CPU,... PRIORITY BATCH BYTES [clock]\n");
        return 2;
    }
    object = open_object(argv[1]);
    ifindex = if_nametoindex(argv[2]);
    if (!object || bpf_object__load(object))
        err(1, "%s cannot be loaded", argv[1]);
    if (bpf_link_create(program(object, clock ? "bare_drop_clock" : "bare_drop"), ifindex, BPF_XDP, &native) <
        0)
        err(1, "nothing can be attached to %s", argv[2]);
    cpus = argv[3];
    for (char *next; (next = strchr(cpus, ',')); cpus = next + 1)
        if (!fork())
            break;
    if (take_cpu(atoi(cpus), atoi(argv[4])))
        err(1, "CPU %s or its real-time priority cannot be had", cpus);
    if (send_frames(program(object, clock ? "bare_send_clock" : "bare_send"), ifindex, atoi(argv[5]),
                    atoi(argv[6])))
        err(1, "live frames cannot be sent");
    return 0;
}
