// SPDX-License-Identifier: Apache-2.0
// Classic filters under traffic: UDP datagrams over the loopback device of a network namespace of our own,
// from send() to recv(), while a packet socket (as tcpdump and DHCP clients have one) looks at each through
// its filter.
#include "sockets.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
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

static int own_network(void) { return unshare(CLONE_NEWNET) || loopback_up() ? -1 : 0; }

static int open_udp(struct subject *subject) {
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

// It sees IPv4 as it is received: once, while ETH_P_ALL on this device would see it as it is sent, too. The
// latest tap comes first: it has seen a datagram when recv() returns. It is there only while its round lasts,
// or every subject would pay for all taps.
static int open_tap(struct subject *subject) {
    struct sockaddr_ll where = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP)};
    subject->tap = socket(AF_PACKET, SOCK_RAW, 0);
    if (subject->tap < 0)
        return blame(subject, "packet socket");
    if (attach_filter(subject, subject->tap))
        return -1;
    if (bind(subject->tap, (struct sockaddr *)&where, sizeof(where)))
        return blame(subject, "bind");
    return 0;
}

// The verdict is the length of the packet that passes the tap, or 0.
static int one_datagram(struct subject *subject) {
    static _Alignas(PAGE_BYTES) char buffer[PAGE_BYTES];
    if (send(subject->fd, subject->data, subject->data_bytes, 0) < 0)
        return blame(subject, "send");
    if (recv(subject->peer, buffer, sizeof(buffer), 0) < 0)
        return blame(subject, "recv");
    if (subject->tap < 0)
        return 0;
    ssize_t seen = recv(subject->tap, buffer, sizeof(buffer), MSG_DONTWAIT);
    if (seen < 0 && errno != EAGAIN)
        return blame(subject, "recv from tap");
    subject->verdict = seen < 0 ? 0 : seen;
    return 0;
}

static int datagrams(struct subject *subject, long times) {
    if (subject->number && open_tap(subject))
        return -1;
    int error = one_datagram(subject) || time_loop(subject, times, one_datagram) ? -1 : 0;
    if (subject->tap >= 0)
        close(subject->tap);
    subject->tap = -1;
    return error;
}

static void close_udp(struct subject *subject) {
    if (subject->fd >= 0)
        close(subject->fd);
    if (subject->peer >= 0)
        close(subject->peer);
}

const struct bench TRAFFIC = {
    .name = "traffic",
    .says = "classic: UDP payload DATA over loopback, seen by NUMBER packet sockets (0, 1) with filter CODE",
    .begin = own_network,
    .open = open_udp,
    .batch = datagrams,
    .close = close_udp,
};
