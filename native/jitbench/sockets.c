// SPDX-License-Identifier: Apache-2.0
// Classic filters on a pair of Unix sockets: the kernel runs the receiver's filter while a frame is sent, on
// the bytes as they are, and nothing but the system call lies around it.
#include "sockets.h"

#include <errno.h>
#include <linux/filter.h>
#include <sys/socket.h>
#include <unistd.h>

int attach_filter(struct subject *subject, int socket) {
    if (!subject->code_bytes)
        return 0;
    struct sock_fprog program = {
        .len = subject->code_bytes / sizeof(struct sock_filter),
        .filter = (struct sock_filter *)subject->code,
    };
    if (setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)))
        return blame(subject, "SO_ATTACH_FILTER");
    return 0;
}

static int open_pair(struct subject *subject) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair))
        return blame(subject, "socketpair");
    subject->fd = pair[0];
    subject->peer = pair[1];
    return attach_filter(subject, subject->peer);
}

// A filter says how many bytes it lets through; of what it lets through none, the sender learns nothing.
static int send_frame(struct subject *subject) {
    static _Alignas(PAGE_BYTES) char frame[PAGE_BYTES];
    if (send(subject->fd, subject->data, subject->data_bytes, 0) < 0)
        return blame(subject, "send");
    ssize_t passed = recv(subject->peer, frame, sizeof(frame), MSG_DONTWAIT);
    if (passed < 0 && errno != EAGAIN)
        return blame(subject, "recv");
    subject->verdict = passed < 0 ? 0 : passed;
    return 0;
}

static int send_frames(struct subject *subject, long times) { return time_loop(subject, times, send_frame); }

static void close_pair(struct subject *subject) {
    if (subject->fd >= 0)
        close(subject->fd);
    if (subject->peer >= 0)
        close(subject->peer);
}

const struct bench SOCKET_FILTERS = {
    .name = "sockets",
    .says = "classic: filter CODE on frame DATA, sent from one Unix socket to another",
    .open = open_pair,
    .batch = send_frames,
    .close = close_pair,
};
