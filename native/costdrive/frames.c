// SPDX-License-Identifier: Apache-2.0
#include "frames.h"
#include "fail.h"
#include "json.h"
#include "refusal.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum { COST_REPEAT = 16 };

extern const char embedded_ends_start[], embedded_ends_end[];

static enum way way;
static const struct frames *frames;
static int program_fd, sender_fd = -1, sink_fd = -1, packet_fd = -1;
static int tg;
static bool anew;
static const char *gro_device;
static struct returned returned;

static int checked(int result, const char *step) {
    if (result < 0)
        fail(step, errno, refusal_words(), "%s: %s", step, error_words(errno));
    return result;
}

static void add_frame(struct frames *all, const char *text) {
    all->items = reallocarray(all->items, all->count + 1, sizeof(*all->items));
    if (!all->items)
        fail("frames", ENOMEM, NULL, "no memory for the frames");
    struct given_frame *frame = &all->items[all->count++];
    unsigned char *to = (unsigned char *)frame->words;
    memset(frame, 0, sizeof(*frame));
    for (unsigned byte; frame->bytes < MOST_FRAME_BYTES && sscanf(text, "%2x", &byte) == 1; text += 2)
        to[frame->bytes++] = byte;
}

struct frames frames_read(const char *path) {
    struct frames all = {};
    char line[2 * MOST_FRAME_BYTES + 2];
    FILE *file = fopen(path, "r");

    if (!file)
        fail("frames", errno, NULL, "%s cannot be read", path);
    while (fgets(line, sizeof(line), file))
        add_frame(&all, line);
    fclose(file);
    if (!all.count)
        fail("frames", EINVAL, NULL, "%s has no frame", path);
    return all;
}

static void set_gro(const char *device, bool on) {
    struct ethtool_value value = {.cmd = ETHTOOL_SGRO, .data = on};
    struct ifreq request = {.ifr_data = (char *)&value};
    int fd = checked(socket(AF_INET, SOCK_DGRAM, 0), "socket");

    strncpy(request.ifr_name, device, IFNAMSIZ - 1);
    checked(ioctl(fd, SIOCETHTOOL, &request), "gro");
}

static void open_packet_socket(void) {
    struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_ifindex = tg};
    int yes = 1;

    packet_fd = checked(socket(AF_PACKET, SOCK_RAW, 0), "packet socket");
    checked(bind(packet_fd, (struct sockaddr *)&address, sizeof(address)), "bind");
    checked(setsockopt(packet_fd, SOL_PACKET, PACKET_QDISC_BYPASS, &yes, sizeof(yes)), "qdisc bypass");
}

static int program_named(struct bpf_object *object, const char *name) {
    return bpf_program__fd(bpf_object__find_program_by_name(object, name));
}

static void load_ends(void) {
    LIBBPF_OPTS(bpf_object_open_opts, options, .object_name = "ends");
    struct bpf_object *ends =
        bpf_object__open_mem(embedded_ends_start, embedded_ends_end - embedded_ends_start, &options);

    if (!ends)
        fail("open", errno, refusal_words(), "the sender's programs cannot be opened");
    bpf_map__set_initial_value(bpf_object__find_map_by_name(ends, ".rodata"), &frames->count,
                               sizeof(frames->count));
    bpf_map__set_max_entries(bpf_object__find_map_by_name(ends, "frames"), frames->count);
    bpf_program__set_autoload(bpf_object__find_program_by_name(ends, "send"), way == WAY_LIVE);
    if (bpf_object__load(ends))
        fail("load", errno, refusal_words(), "the kernel refuses the sender's programs");
    int map = bpf_object__find_map_fd_by_name(ends, "frames");
    for (unsigned i = 0; i < frames->count; i++)
        checked(bpf_map_update_elem(map, &i, &frames->items[i], 0), "frames");
    if (way == WAY_LIVE)
        sender_fd = program_named(ends, "send");
    sink_fd = program_named(ends, "sink");
    checked(bpf_xdp_attach(tg, sink_fd, XDP_FLAGS_DRV_MODE, NULL), "attach the sink");
}

void sender_open(const struct options *options, const struct frames *given, int program) {
    way = options->way;
    anew = options->anew;
    frames = given;
    program_fd = program;
    if (way == WAY_TEST_RUN)
        return;
    tg = (int)if_nametoindex(options->tg);
    if (!tg)
        fail("interface", errno, NULL, "there is no interface %s", options->tg);
    if (options->gro) {
        gro_device = options->dut;
        set_gro(gro_device, true);
    }
    if (way == WAY_PACKETS)
        open_packet_socket();
    load_ends();
    if (anew) {
        json_begin("anew");
        json_end();
    }
}

static bool has_length(unsigned length) {
    for (unsigned i = 0; i < frames->count; i++)
        if (frames->items[i].bytes == length)
            return true;
    return false;
}

// The kernel keeps a page's frame as the program left it, unless its data have moved or the sender gives it
// another length: the next frame there would be one that the program has shortened before.
static unsigned length_of_none(void) {
    unsigned length = MOST_FRAME_BYTES;

    while (has_length(length))
        length--;
    return length;
}

static void send_live(unsigned count) {
    const struct given_frame *first = frames->items;
    unsigned length = anew ? length_of_none() : first->bytes;
    struct xdp_md context = {.data_end = length, .ingress_ifindex = tg};
    LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = first->words, .data_size_in = length,
                .ctx_in = &context, .ctx_size_in = sizeof(context), .repeat = (int)count,
                .flags = BPF_F_TEST_XDP_LIVE_FRAMES);

    checked(bpf_prog_test_run_opts(sender_fd, &options), "live frames");
}

static const struct given_frame *next_frame(void) {
    static unsigned number;

    return &frames->items[number++ % frames->count];
}

static void send_packets(unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        const struct given_frame *frame = next_frame();
        checked(send(packet_fd, frame->words, frame->bytes, 0), "send");
    }
}

// One call a frame: a call that repeats would show the program what it has made of the frame before.
static void send_test_runs(unsigned count) {
    returned = (struct returned){};
    for (unsigned i = 0; i < count; i++) {
        const struct given_frame *frame = next_frame();
        LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = frame->words, .data_size_in = frame->bytes,
                    .repeat = 1);

        checked(bpf_prog_test_run_opts(program_fd, &options), "test run");
        returned.tx += options.retval == XDP_TX;
        returned.pass += options.retval == XDP_PASS;
    }
}

// Without a test run: what the verifier walked, and as much again thrice for the functions that it calls.
static unsigned most_cost(void) {
    struct bpf_prog_info info = {};
    unsigned length = sizeof(info);

    checked(bpf_obj_get_info_by_fd(program_fd, &info, &length), "program");
    return 4 * info.verified_insns;
}

unsigned program_cost(bool device_bound) {
    if (device_bound)
        return most_cost();
    const struct given_frame *first = frames->items;
    LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = first->words, .data_size_in = first->bytes,
                .repeat = COST_REPEAT);

    checked(bpf_prog_test_run_opts(program_fd, &options), "test run");
    return options.duration;
}

void sender_close(void) {
    if (sink_fd >= 0)
        bpf_xdp_detach(tg, XDP_FLAGS_DRV_MODE, NULL);
    if (gro_device)
        set_gro(gro_device, false);
}

void sender_send(unsigned count) {
    static void (*const ways[])(unsigned) = {
        [WAY_LIVE] = send_live, [WAY_PACKETS] = send_packets, [WAY_TEST_RUN] = send_test_runs};
    ways[way](count);
}

static unsigned id_of(int fd) {
    struct bpf_prog_info info = {};
    unsigned length = sizeof(info);

    return fd >= 0 && !bpf_obj_get_info_by_fd(fd, &info, &length) ? info.id : 0;
}

struct returned sender_returned(void) {
    return returned;
}

unsigned sender_id(void) { return id_of(sender_fd); }
unsigned sink_id(void) { return id_of(sink_fd); }
