// SPDX-License-Identifier: Apache-2.0
// Classic filters under traffic: UDP datagrams over the loopback device of a network namespace of our own,
// from send() to recv(), while packet sockets look at each through a filter.
#include "traffic.h"
#include "bench.h"
#include "taps.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static int loopback_up(void) {
    struct ifreq request = {.ifr_name = "lo"};
    int any = socket(AF_INET, SOCK_DGRAM, 0);
    if (any < 0)
        return -1;
    int error = ioctl(any, SIOCGIFFLAGS, &request);
    request.ifr_flags |= IFF_UP;
    error = error ? error : ioctl(any, SIOCSIFFLAGS, &request);
    close(any);
    return error;
}

int own_network(void) { return unshare(CLONE_NEWNET) || loopback_up() ? -1 : 0; }

static const char *policy_now(void) {
    switch (sched_getscheduler(0)) {
    case SCHED_FIFO:
        return "SCHED_FIFO";
    case SCHED_OTHER:
        return "SCHED_OTHER";
    default:
        return "another";
    }
}

// Where the machine allows it, nothing else runs on this CPU in a round: what is sought is a few ns of 256
// runs.
static void run_alone(struct subject *subject) {
    const struct sched_param least = {.sched_priority = 1};
    sched_setscheduler(0, SCHED_FIFO, &least);
    subject->policy_wanted = "SCHED_FIFO";
    subject->policy = policy_now();
}

// Many packet sockets are in a network of their own: others of this process do not pay for them.
static int open_many(struct subject *subject) {
    if (subject->number <= 1)
        return 0;
    run_alone(subject);
    if (own_network())
        return blame(subject, "a network of its own");
    return taps_open(subject);
}

static int open_udp(struct subject *subject) {
    if (open_many(subject))
        return -1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    subject->fd = socket(AF_INET, SOCK_DGRAM, 0);
    subject->peer = socket(AF_INET, SOCK_DGRAM, 0);
    if (subject->fd < 0 || subject->peer < 0)
        return blame(subject, "socket");
    if (bind(subject->peer, (struct sockaddr *)&address, length) ||
        getsockname(subject->peer, (struct sockaddr *)&address, &length) ||
        connect(subject->fd, (struct sockaddr *)&address, length))
        return blame(subject, "connect");
    return 0;
}

// The verdict is the length of the packet that passes the tap, or 0.
static int one_datagram(struct subject *subject) {
    static _Alignas(PAGE_BYTES) char buffer[PAGE_BYTES];
    if (send(subject->fd, subject->data, subject->data_bytes, 0) < 0)
        return blame(subject, "send");
    if (recv(subject->peer, buffer, sizeof(buffer), 0) < 0)
        return blame(subject, "recv");
    return subject->tap < 0 ? 0 : tap_read(subject);
}

int through_tap(struct subject *subject, long times, int (*once)(struct subject *subject)) {
    if (subject->number && tap_open(subject))
        return -1;
    int error = once(subject);
    subject->passed = subject->number ? 0 : -1;
    error = error || time_loop(subject, times, once) ? -1 : 0;
    tap_close(subject);
    return error;
}

static int datagrams(struct subject *subject, long times) {
    if (subject->number <= 1)
        return through_tap(subject, times, one_datagram);
    // The first datagram after the other subjects finds nothing of this one in the caches.
    if (one_datagram(subject) || taps_begin(subject) || time_loop(subject, times, one_datagram))
        return -1;
    return taps_judge(subject, times);
}

void close_sockets(struct subject *subject) {
    taps_close(subject);
    if (subject->fd >= 0)
        close(subject->fd);
    if (subject->peer >= 0)
        close(subject->peer);
}

const struct bench TRAFFIC = {
    .name = "traffic",
    .says = "classic: UDP payload DATA over loopback, seen by NUMBER packet sockets with filter CODE",
    .begin = own_network,
    .open = open_udp,
    .batch = datagrams,
    .close = close_sockets,
};
