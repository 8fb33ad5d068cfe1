// SPDX-License-Identifier: Apache-2.0
#include "attach.h"
#include "fail.h"
#include "interface.h"
#include "json.h"
#include "let_go.h"
#include "refusal.h"
#include "tc.h"

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
static const struct options *asked; // what is attached, and how; NULL before
static int index_attached;
static long long attached_in_ns;

static const unsigned mode_flags[] = {[MODE_NATIVE] = XDP_FLAGS_DRV_MODE,
                                      [MODE_GENERIC] = XDP_FLAGS_SKB_MODE,
                                      [MODE_OFFLOAD] = XDP_FLAGS_HW_MODE};

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

static unsigned program_that_stays(const struct options *options, int ifindex) {
    const uint64_t began = now_ns();
    unsigned id;
    while (((id = attached_id(options->interface, ifindex)) || (id = tc_first(ifindex))) &&
           !nobody_commands() && let_go_wait(began, LET_GO_PROGRAM_NS))
        ;
    refusal_forget(); // libbpf warns of an interface without filters
    return id;
}

void refuse_if_taken(const struct options *options, int ifindex) {
    unsigned id = program_that_stays(options, ifindex);
    if (id)
        fail("attach", EBUSY, NULL, "%s already has %s program %u attached; detach it first",
             options->interface, id == tc_first(ifindex) ? "tc, tcx or netkit" : "XDP", id);
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

// The same of a program of any mode.
static const char *mode_now(unsigned program_id) {
    struct bpf_xdp_query_opts attached;
    if (is_tc(asked->mode))
        return tc_runs(asked->mode, index_attached, program_id) ? mode_name(asked->mode) : NULL;
    attached = query(asked->interface, index_attached);
    return mode_obtained(&attached, program_id);
}

static void print_attached(const struct program *program, long long attach_ns) {
    json_begin("attached");
    json_string("interface", asked->interface);
    json_string("mode", mode_name(asked->mode));
    json_string("mode_obtained", mode_now(id_of(program->fd, false)));
    json_integer("attach_ns", attach_ns);
    json_known("link_id", link_fd < 0 ? -1 : (long long)id_of(link_fd, true));
    json_end();
}

void attached(const struct program *program, char *arguments) {
    (void)arguments;
    if (asked)
        print_attached(program, attached_in_ns);
    else
        complain("attached", EINVAL, "no program was attached");
}

static int make_link(const struct program *program, enum mode mode, int ifindex) {
    LIBBPF_OPTS(bpf_link_create_opts, link_options, .flags = mode_flags[mode]);
    if (is_tc(mode))
        return bpf_link_create(program->fd, ifindex, tc_link_hook(mode), NULL);
    return bpf_link_create(program->fd, ifindex, BPF_XDP, &link_options);
}

// Kernels that lack a mode refuse it as invalid.
static const char *since(enum mode mode) {
    return mode == MODE_TCX      ? " (Linux 6.6 on)"
           : mode == MODE_NETKIT ? " (Linux 6.7 on, with CONFIG_NETKIT)"
                                 : "";
}

void attach_program(const struct program *program, const struct options *options, int ifindex) {
    long long start = now_ns();
    int result = options->mode == MODE_TC ? tc_attach(program->fd, ifindex, &attached_in_ns)
                                          : make_link(program, options->mode, ifindex);
    if (options->mode != MODE_TC)
        attached_in_ns = now_ns() - start;
    if (result == -EEXIST && options->mode == MODE_TC)
        fail("attach", EEXIST, NULL, "%s has a clsact or ingress qdisc already; remove it first",
             options->interface);
    if (result < 0) {
        interface_require(options->interface, ifindex);
        if (!is_tc(options->mode))
            ask_again_for_words(program, options, ifindex);
        fail("attach", -result, refusal_words(), "%s does not take the program in %s mode%s: %s",
             options->interface, mode_name(options->mode), result == -EINVAL ? since(options->mode) : "",
             error_words(-result));
    }
    if (options->mode != MODE_TC)
        link_fd = result;
    index_attached = ifindex;
    asked = options;
    print_attached(program, attached_in_ns);
}

const char *attached_interface(void) { return asked ? asked->interface : NULL; }

int exchange_program(int fd) {
    return asked->mode == MODE_TC ? -EOPNOTSUPP : bpf_link_update(link_fd, fd, NULL);
}

bool detach_program(void) {
    asked = NULL;
    bool gone = tc_detach();
    if (link_fd < 0)
        return gone;
    bpf_link_detach(link_fd); // at once, where closing may leave it to a kernel worker
    close(link_fd);
    link_fd = -1;
    return gone;
}
