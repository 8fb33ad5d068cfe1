// SPDX-License-Identifier: Apache-2.0
// Classic filters under traffic of one TCP connection over the loopback device.
#include "bench.h"
#include "traffic.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

static int receive_all(struct subject *subject, int socket) {
    static _Alignas(PAGE_BYTES) char buffer[16 * PAGE_BYTES];
    for (size_t left = subject->data_bytes; left;) {
        ssize_t found = recv(socket, buffer, left < sizeof(buffer) ? left : sizeof(buffer), 0);
        if (found <= 0)
            return blame(subject, "recv");
        left -= found;
    }
    return 0;
}

static int send_all(struct subject *subject, int socket) {
    if (send(socket, subject->data, subject->data_bytes, 0) != (ssize_t)subject->data_bytes)
        return blame(subject, "send");
    return 0;
}

static int one_stretch(struct subject *subject) {
    if (send_all(subject, subject->fd) || receive_all(subject, subject->peer))
        return -1;
    return subject->tap < 0 ? 0 : tap_read(subject);
}

static int one_transaction(struct subject *subject) {
    if (send_all(subject, subject->fd) || receive_all(subject, subject->peer) ||
        send_all(subject, subject->peer) || receive_all(subject, subject->fd))
        return -1;
    return subject->tap < 0 ? 0 : tap_read(subject);
}

// Which segments a round has (data, or an acknowledgement alone) varies: the verdict is whether any passed.
static int judged(struct subject *subject, int error) {
    subject->verdict = subject->verdict > 0;
    return error;
}

static int stretches(struct subject *subject, long times) {
    return judged(subject, through_tap(subject, times, one_stretch));
}

static int transactions(struct subject *subject, long times) {
    return judged(subject, through_tap(subject, times, one_transaction));
}

static int open_tcp(struct subject *subject) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    const int on = 1;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    subject->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || subject->fd < 0)
        return blame(subject, "socket");
    if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, 1) ||
        getsockname(listener, (struct sockaddr *)&address, &length) ||
        connect(subject->fd, (struct sockaddr *)&address, length) ||
        (subject->peer = accept(listener, NULL, NULL)) < 0)
        return blame(subject, "connect");
    close(listener);
    if (setsockopt(subject->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) ||
        setsockopt(subject->peer, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)))
        return blame(subject, "TCP_NODELAY");
    return 0;
}

const struct bench TCP_RR = {
    .name = "tcp-rr",
    .says = "classic: DATA over a TCP connection and back, seen by NUMBER packet sockets (0, 1)",
    .begin = own_network,
    .open = open_tcp,
    .batch = transactions,
    .close = close_sockets,
};

const struct bench TCP_STREAM = {
    .name = "tcp-stream",
    .says = "classic: DATA over a TCP connection, seen by NUMBER packet sockets (0, 1)",
    .begin = own_network,
    .open = open_tcp,
    .batch = stretches,
    .close = close_sockets,
};
