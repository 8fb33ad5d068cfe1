// SPDX-License-Identifier: Apache-2.0
#include "attach.h"
#include "fail.h"
#include "json.h"
#include "let_go.h"
#include "refusal.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/if_link.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static volatile int link_fd = -1;
static const char *interface_attached;

static const unsigned mode_flags[] = {[MODE_NATIVE] = XDP_FLAGS_DRV_MODE,
                                      [MODE_GENERIC] = XDP_FLAGS_SKB_MODE,
                                      [MODE_OFFLOAD] = XDP_FLAGS_HW_MODE};

int find_interface(const char *name) {
    int ifindex = if_nametoindex(name);
    if (!ifindex)
        fail("interface", errno, NULL, "there is no interface %s", name);
    return ifindex;
}

void read_driver(const char *name, char *driver, size_t room) {
    struct ethtool_drvinfo info = {.cmd = ETHTOOL_GDRVINFO};
    struct ifreq request = {.ifr_data = (void *)&info};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    strncpy(request.ifr_name, name, IFNAMSIZ - 1);
    int error = fd < 0 || ioctl(fd, SIOCETHTOOL, &request);
    snprintf(driver, room, "%s", error ? "unknown" : info.driver);
    if (fd >= 0)
        close(fd);
}

static struct bpf_xdp_query_opts query(const char *name, int ifindex) {
    LIBBPF_OPTS(bpf_xdp_query_opts, attached);
    int error = bpf_xdp_query(ifindex, 0, &attached);
    if (error)
        fail("attach", -error, refusal_words(), "XDP programs of %s cannot be queried", name);
    return attached;
}

// Of any mode; 0 where there is none.
static unsigned attached_id(const char *name, int ifindex) {
    struct bpf_xdp_query_opts attached = query(name, ifindex);
    const unsigned ids[] = {attached.drv_prog_id, attached.skb_prog_id, attached.hw_prog_id,
                            attached.prog_id};
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++)
        if (ids[i])
            return ids[i];
    return 0;
}

static unsigned program_that_stays(const char *name, int ifindex) {
    const uint64_t began = now_ns();
    unsigned id;
    while ((id = attached_id(name, ifindex)) && !nobody_commands() && let_go_wait(began, LET_GO_PROGRAM_NS))
        ;
    return id;
}

void refuse_if_taken(const char *name, int ifindex) {
    unsigned id = program_that_stays(name, ifindex);
    if (id)
        fail("attach", EBUSY, NULL, "%s already has XDP program %u attached; detach it first", name, id);
}

// A refused bpf_link does not pass the driver's message to user space, a refused netlink request does.
static void ask_again_for_words(const struct program *program, const struct options *options, int ifindex) {
    unsigned flags = mode_flags[options->mode] | XDP_FLAGS_UPDATE_IF_NOEXIST;
    refusal_forget();
    if (!bpf_xdp_attach(ifindex, program->fd, flags, NULL))
        bpf_xdp_detach(ifindex, mode_flags[options->mode], NULL);
}

// The mode in which the kernel reports this program as attached, or NULL.
static const char *mode_obtained(const struct bpf_xdp_query_opts *attached, unsigned program_id) {
    if (attached->drv_prog_id == program_id)
        return mode_name(MODE_NATIVE);
    if (attached->skb_prog_id == program_id)
        return mode_name(MODE_GENERIC);
    if (attached->hw_prog_id == program_id)
        return mode_name(MODE_OFFLOAD);
    return NULL;
}

static unsigned id_of(int fd, bool is_link) {
    struct bpf_link_info link = {};
    struct bpf_prog_info program = {};
    unsigned length = is_link ? sizeof(link) : sizeof(program);
    void *info = is_link ? (void *)&link : (void *)&program;
    if (bpf_obj_get_info_by_fd(fd, info, &length))
        fail("attach", errno, NULL, "the attached %s cannot be read back", is_link ? "link" : "program");
    return is_link ? link.id : program.id;
}

static void print_attached(const struct program *program, const struct options *options, int ifindex,
                           long long attach_ns) {
    struct bpf_xdp_query_opts attached = query(options->interface, ifindex);
    json_begin("attached");
    json_string("interface", options->interface);
    json_string("mode", mode_name(options->mode));
    json_string("mode_obtained", mode_obtained(&attached, id_of(program->fd, false)));
    json_integer("attach_ns", attach_ns);
    json_integer("link_id", id_of(link_fd, true));
    json_end();
}

void attach_program(const struct program *program, const struct options *options, int ifindex) {
    LIBBPF_OPTS(bpf_link_create_opts, link_options, .flags = mode_flags[options->mode]);
    long long start = now_ns();
    int fd = bpf_link_create(program->fd, ifindex, BPF_XDP, &link_options);
    long long attach_ns = now_ns() - start;
    if (fd < 0) {
        ask_again_for_words(program, options, ifindex);
        fail("attach", -fd, refusal_words(), "%s does not take the program in %s mode: %s",
             options->interface, mode_name(options->mode), error_words(-fd));
    }
    link_fd = fd;
    interface_attached = options->interface;
    print_attached(program, options, ifindex, attach_ns);
}

const char *attached_interface(void) { return link_fd < 0 ? NULL : interface_attached; }

int exchange_program(int fd) { return bpf_link_update(link_fd, fd, NULL); }

void detach_program(void) {
    if (link_fd < 0)
        return;
    bpf_link_detach(link_fd); // at once, where closing may leave it to a kernel worker
    close(link_fd);
    link_fd = -1;
}
