// SPDX-License-Identifier: Apache-2.0
#include "network.h"
#include "fail.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define KIND "veth"

// A link of kind veth without a name: the kernel calls its ends veth0 and veth1.
struct request {
    struct nlmsghdr header;
    struct ifinfomsg link;
    struct rtattr info;
    struct rtattr kind;
    char name[NLMSG_ALIGN(sizeof(KIND))];
};

static void make_link(int netlink) {
    struct request request = {
        .header = {.nlmsg_len = sizeof(request),
                   .nlmsg_type = RTM_NEWLINK,
                   .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL},
        .info = {.rta_type = IFLA_LINKINFO, .rta_len = 2 * sizeof(struct rtattr) + sizeof(request.name)},
        .kind = {.rta_type = IFLA_INFO_KIND, .rta_len = sizeof(struct rtattr) + sizeof(KIND)},
        .name = KIND,
    };
    struct {
        struct nlmsghdr header;
        struct nlmsgerr error;
        char rest[1024];
    } answer;
    if (send(netlink, &request, sizeof(request), 0) < 0 || recv(netlink, &answer, sizeof(answer), 0) < 0)
        fail("network", errno, NULL, "no veth pair: %s", strerror(errno));
    if (answer.error.error)
        fail("network", -answer.error.error, NULL, "no veth pair: %s", strerror(-answer.error.error));
}

// Neighbour discovery would send frames while something is measured.
static void silence(void) {
    int fd = open("/proc/sys/net/ipv6/conf/default/disable_ipv6", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return; // a kernel without IPv6
    if (write(fd, "1", 1) != 1)
        fail("network", errno, NULL, "IPv6 cannot be turned off: %s", strerror(errno));
    close(fd);
}

static void set_up(int socket, const char *name) {
    struct ifreq request = {.ifr_flags = IFF_UP};
    strcpy(request.ifr_name, name);
    if (ioctl(socket, SIOCSIFFLAGS, &request))
        fail("network", errno, NULL, "%s cannot be set up: %s", name, strerror(errno));
}

int network_make(void) {
    if (unshare(CLONE_NEWNET))
        fail("network", errno, NULL, "no network namespace: %s", strerror(errno));
    silence();
    int netlink = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (netlink < 0)
        fail("network", errno, NULL, "no netlink: %s", strerror(errno));
    make_link(netlink);
    close(netlink);
    int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    set_up(any, "veth1");
    set_up(any, NETWORK_INTERFACE);
    close(any);
    return if_nametoindex(NETWORK_INTERFACE);
}
