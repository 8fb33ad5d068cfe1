// SPDX-License-Identifier: Apache-2.0
#include "redirect.h"
#include "fail.h"
#include "interface.h"
#include "let_go.h"
#include "refusal.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/if_link.h>
#include <string.h>
#include <unistd.h>

extern const char embedded_redirect_start[], embedded_redirect_end[];

static struct bpf_program *program_of(const struct redirect *redirect) {
    return bpf_object__find_program_by_name(redirect->object, "xdplab_redirect");
}

void redirect_load(struct redirect *redirect, const char *interface, bool frags) {
    redirect->link_fd = -1;
    redirect->ifindex = interface_find(interface);
    redirect->object =
        bpf_object__open_mem(embedded_redirect_start, embedded_redirect_end - embedded_redirect_start, NULL);
    if (!redirect->object)
        fail("open", errno, refusal_words(), "the redirecting program cannot be read");
    if (frags)
        bpf_program__set_flags(program_of(redirect), BPF_F_XDP_HAS_FRAGS);
    int error = bpf_object__load(redirect->object);
    if (error)
        fail("load", -error, refusal_words(), "the kernel refuses %s%s: %s",
             refusal_program("the redirecting program"),
             refusal_compiler(embedded_redirect_start, embedded_redirect_end - embedded_redirect_start),
             strerror(-error));
    redirect->map_fd = bpf_object__find_map_fd_by_name(redirect->object, "sockets");
    redirect->program_fd = bpf_program__fd(program_of(redirect));
}

void redirect_add(const struct redirect *redirect, unsigned queue, int socket_fd) {
    int error = bpf_map_update_elem(redirect->map_fd, &queue, &socket_fd, 0);
    if (error)
        fail("xskmap", errno, NULL, "the socket of queue %u cannot be put into the map", queue);
}

static unsigned program_id(int fd) {
    struct bpf_prog_info info = {};
    unsigned length = sizeof(info);
    if (bpf_obj_get_info_by_fd(fd, &info, &length))
        fail("attach", errno, refusal_words(), "the program cannot be read back");
    return info.id;
}

static struct bpf_xdp_query_opts query(const struct redirect *redirect, const char *interface) {
    LIBBPF_OPTS(bpf_xdp_query_opts, attached);
    int error = bpf_xdp_query(redirect->ifindex, 0, &attached);
    if (error)
        fail("attach", -error, refusal_words(), "XDP programs of %s cannot be queried", interface);
    return attached;
}

// Returns the id of the program attached in any mode, or 0.
static unsigned attached_id(const struct redirect *redirect, const char *interface) {
    struct bpf_xdp_query_opts attached = query(redirect, interface);
    unsigned id = attached.drv_prog_id ? attached.drv_prog_id : attached.skb_prog_id;
    return id ? id : attached.hw_prog_id;
}

static unsigned program_that_stays(const struct redirect *redirect, const char *interface) {
    const uint64_t began = now_ns();
    unsigned id;
    while ((id = attached_id(redirect, interface)) && !nobody_commands() &&
           let_go_wait(began, LET_GO_PROGRAM_NS))
        ;
    return id;
}

static void refuse_if_taken(const struct redirect *redirect, const char *interface) {
    unsigned id = program_that_stays(redirect, interface);
    if (id)
        fail("attach", EBUSY, refusal_words(), "%s already has XDP program %u attached; detach it first",
             interface, id);
}

// The kernel passes the driver's message to user space only for a refused netlink request, not for a
// bpf_link.
static void ask_again_for_words(const struct redirect *redirect, unsigned flags) {
    refusal_forget();
    if (!bpf_xdp_attach(redirect->ifindex, redirect->program_fd, flags | XDP_FLAGS_UPDATE_IF_NOEXIST, NULL))
        bpf_xdp_detach(redirect->ifindex, flags, NULL);
}

void redirect_attach(struct redirect *redirect, const char *interface, bool native) {
    LIBBPF_OPTS(bpf_link_create_opts, options, .flags = native ? XDP_FLAGS_DRV_MODE : XDP_FLAGS_SKB_MODE);
    refuse_if_taken(redirect, interface);
    redirect->link_fd = bpf_link_create(redirect->program_fd, redirect->ifindex, BPF_XDP, &options);
    if (redirect->link_fd < 0) {
        int error = -redirect->link_fd;
        interface_require(interface, redirect->ifindex);
        ask_again_for_words(redirect, options.flags);
        fail("attach", error, refusal_words(), "%s does not take an XDP program in %s mode: %s", interface,
             native ? "native" : "generic", strerror(error));
    }
    redirect->program_id = program_id(redirect->program_fd);
    struct bpf_xdp_query_opts attached = query(redirect, interface);
    bool obtained_native = attached.drv_prog_id == redirect->program_id;
    bool obtained_generic = attached.skb_prog_id == redirect->program_id;
    redirect->mode_obtained = obtained_native ? "native" : obtained_generic ? "generic" : NULL;
}

void redirect_detach(struct redirect *redirect) {
    if (redirect->link_fd < 0)
        return;
    bpf_link_detach(redirect->link_fd); // at once; close() may leave it to a kernel worker
    close(redirect->link_fd);
    redirect->link_fd = -1;
}

uint64_t redirect_unbound_packets(const struct redirect *redirect) {
    const struct bpf_map *bss = bpf_object__find_map_by_name(redirect->object, ".bss");
    uint64_t packets = 0;
    unsigned key = 0;
    if (bpf_map_lookup_elem(bpf_map__fd(bss), &key, &packets))
        fail("stats", errno, NULL, "the program's count of unbound packets cannot be read");
    return packets;
}
