// SPDX-License-Identifier: Apache-2.0
#include "tc.h"
#include "clock.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST 64 // BPF_MPROG_MAX: programs at one hook of an interface

#define HOOK(name) LIBBPF_OPTS(bpf_tc_hook, name, .ifindex = ifindex, .attach_point = BPF_TC_INGRESS)
#define FILTER(name, ...) LIBBPF_OPTS(bpf_tc_opts, name, .handle = 1, .priority = 1, ##__VA_ARGS__)

static volatile pid_t holder;
static volatile int holder_end = -1;

struct made {
    int error;
    long long ns;
};

static unsigned linked_first(int ifindex, enum mode mode) {
    unsigned ids[MOST] = {}, count = MOST;
    return bpf_prog_query(ifindex, tc_link_hook(mode), 0, NULL, ids, &count) || !count ? 0 : ids[0];
}

static unsigned filter_first(int ifindex) {
    HOOK(hook);
    FILTER(filter);
    return bpf_tc_query(&hook, &filter) ? 0 : filter.prog_id;
}

unsigned tc_first(int ifindex) {
    return linked_first(ifindex, MODE_TCX) ?: linked_first(ifindex, MODE_NETKIT) ?: filter_first(ifindex);
}

bool tc_runs(enum mode mode, int ifindex, unsigned program_id) {
    return (mode == MODE_TC ? filter_first(ifindex) : linked_first(ifindex, mode)) == program_id;
}

static struct made make_filter(int program, struct bpf_tc_hook *hook) {
    FILTER(filter, .prog_fd = program);
    const uint64_t began = now_ns();
    int error = bpf_tc_hook_create(hook) ?: bpf_tc_attach(hook, &filter);
    return (struct made){error, now_ns() - began};
}

// Whether the port has filters at a hook; also if that cannot be known.
static bool has_filters(int ifindex, unsigned hook) {
    struct {
        struct nlmsghdr head;
        struct tcmsg filter;
    } ask = {{sizeof(ask), RTM_GETTFILTER, NLM_F_REQUEST | NLM_F_DUMP, 0, 0},
             {.tcm_ifindex = ifindex, .tcm_parent = TC_H_MAKE(TC_H_CLSACT, hook)}};
    _Alignas(struct nlmsghdr) char answer[32768];
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE), has = -1;
    ssize_t length = fd < 0 || send(fd, &ask, sizeof(ask), 0) < 0 ? 0 : recv(fd, answer, sizeof(answer), 0);
    for (struct nlmsghdr *one = (void *)answer; NLMSG_OK(one, length); one = NLMSG_NEXT(one, length)) {
        const struct tcmsg *filter = NLMSG_DATA(one);
        if (one->nlmsg_type == RTM_NEWTFILTER && filter->tcm_handle) // 0: a priority, whose filters follow
            has = 1;
        else if (one->nlmsg_type == NLMSG_DONE && has < 0)
            has = 0;
    }
    if (fd >= 0)
        close(fd);
    return has != 0;
}

// With the qdisc, which is ours; but filters that others have put there since stay, and so does the qdisc.
static int remove_filter(int ifindex, struct bpf_tc_hook *hook) {
    FILTER(filter);
    int error = bpf_tc_detach(hook, &filter);
    if (error && error != -ENOENT)
        return error;
    if (has_filters(ifindex, TC_H_MIN_INGRESS) || has_filters(ifindex, TC_H_MIN_EGRESS))
        return -EBUSY;
    hook->attach_point = BPF_TC_INGRESS | BPF_TC_EGRESS; // the qdisc itself
    return bpf_tc_hook_destroy(hook);
}

// The holder: signals to its maker's group do not reach it.
__attribute__((noreturn)) static void hold_filter(int program, int ifindex, int end) {
    HOOK(hook);
    setpgid(0, 0);
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    struct made made = make_filter(program, &hook);
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        close(fd); // who reads our lines waits for their end
    bool others = made.error == -EEXIST;
    if (send(end, &made, sizeof(made), MSG_NOSIGNAL) == sizeof(made) && !made.error)
        while (recv(end, &made, sizeof(made), 0) < 0 && errno == EINTR)
            ;
    int error = others ? 0 : remove_filter(ifindex, &hook);
    _exit(error && error != -ENODEV); // it goes with its interface
}

int tc_attach(int program, int ifindex, long long *attach_ns) {
    struct made made;
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) || (holder = fork()) < 0)
        return -errno;
    if (!holder) {
        close(ends[0]);
        hold_filter(program, ifindex, ends[1]);
    }
    close(ends[1]);
    holder_end = ends[0];
    if (recv(holder_end, &made, sizeof(made), MSG_WAITALL) != sizeof(made))
        made.error = -ECHILD;
    if (made.error)
        tc_detach();
    else
        *attach_ns = made.ns;
    return made.error;
}

// A signal may come while this waits: its handler then waits for the same process.
bool tc_detach(void) {
    int status = 0;
    if (holder_end >= 0)
        close(holder_end);
    holder_end = -1;
    bool gone = holder <= 0 || (waitpid(holder, &status, 0) > 0 && !status);
    holder = 0;
    return gone;
}
