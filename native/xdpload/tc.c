// SPDX-License-Identifier: Apache-2.0
#include "tc.h"
#include "let_go.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST 64 // BPF_MPROG_MAX: tcx programs on one interface

#define HOOK(name) LIBBPF_OPTS(bpf_tc_hook, name, .ifindex = ifindex, .attach_point = BPF_TC_INGRESS)
#define FILTER(name) LIBBPF_OPTS(bpf_tc_opts, name, .handle = 1, .priority = 1)

static pid_t holder;
static volatile int holder_end = -1;

unsigned tcx_first(int ifindex) {
    unsigned ids[MOST] = {}, count = MOST;
    return bpf_prog_query(ifindex, TCX_INGRESS, 0, NULL, ids, &count) || !count ? 0 : ids[0];
}

bool tc_runs(enum mode mode, int ifindex, unsigned program_id) {
    HOOK(hook);
    FILTER(filter);
    if (mode == MODE_TCX)
        return tcx_first(ifindex) == program_id;
    return !bpf_tc_query(&hook, &filter) && filter.prog_id == program_id;
}

static int make_filter(int program, struct bpf_tc_hook *hook) {
    FILTER(filter);
    const uint64_t began = now_ns();
    int error;
    while ((error = bpf_tc_hook_create(hook)) == -EEXIST && !nobody_commands() &&
           let_go_wait(began, LET_GO_PROGRAM_NS))
        ;
    filter.prog_fd = program;
    return error ?: bpf_tc_attach(hook, &filter);
}

// The holder: signals to its maker's group do not reach it.
__attribute__((noreturn)) static void hold_filter(int program, int ifindex, int end) {
    HOOK(hook);
    setpgid(0, 0);
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    int error = make_filter(program, &hook);
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        close(fd); // who reads our lines waits for their end
    bool others = error == -EEXIST;
    if (send(end, &error, sizeof(error), MSG_NOSIGNAL) == sizeof(error) && !error)
        while (recv(end, &error, sizeof(error), 0) < 0 && errno == EINTR)
            ;
    hook.attach_point = BPF_TC_INGRESS | BPF_TC_EGRESS; // the qdisc itself
    _exit(others ? 0 : bpf_tc_hook_destroy(&hook) != 0);
}

int tc_attach(int program, int ifindex) {
    int ends[2], error;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) || (holder = fork()) < 0)
        return -errno;
    if (!holder) {
        close(ends[0]);
        hold_filter(program, ifindex, ends[1]);
    }
    close(ends[1]);
    holder_end = ends[0];
    if (recv(holder_end, &error, sizeof(error), MSG_WAITALL) != sizeof(error))
        error = -ECHILD;
    if (error)
        tc_detach();
    return error;
}

void tc_detach(void) {
    if (holder_end < 0)
        return;
    close(holder_end);
    holder_end = -1;
    waitpid(holder, NULL, 0);
}
