// SPDX-License-Identifier: Apache-2.0
#include "dispatcher.h"
#include "fail.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <sched.h>
#include <unistd.h>

#define LOOPBACK 1 // the index of lo in every network namespace

bool hold(struct holder *holder, int program) {
    LIBBPF_OPTS(bpf_link_create_opts, options, .flags = XDP_FLAGS_SKB_MODE);
    int own = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);

    *holder = NOT_HELD;
    if (own >= 0 && !unshare(CLONE_NEWNET)) {
        holder->namespace = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
        holder->link = bpf_link_create(program, LOOPBACK, BPF_XDP, &options);
        int error = errno;
        if (setns(own, CLONE_NEWNET))
            fail("namespace", errno, NULL, "there is no way back into the network namespace");
        errno = error;
    }
    if (own >= 0)
        close(own);
    return holder->namespace >= 0 && holder->link >= 0;
}

void let_go(struct holder *holder) {
    if (holder->link >= 0)
        close(holder->link);
    if (holder->namespace >= 0)
        close(holder->namespace);
}
