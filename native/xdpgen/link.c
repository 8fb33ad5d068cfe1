// SPDX-License-Identifier: Apache-2.0
#include "link.h"
#include "fail.h"
#include "payload.h"

#include <errno.h>
#include <ifaddrs.h>
#include <linux/if_link.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

typedef void (*visitor)(const struct ifaddrs *entry, void *result);

// getifaddrs() asks by netlink, so it answers for this network namespace whatever /sys shows.
static int visit(const char *interface, visitor visitor, void *result) {
    struct ifaddrs *all, *entry;

    if (getifaddrs(&all))
        return failed("interface", errno, NULL, "the list of interfaces cannot be read");
    for (entry = all; entry; entry = entry->ifa_next)
        if (entry->ifa_addr && entry->ifa_addr->sa_family == AF_PACKET &&
            !strcmp(entry->ifa_name, interface)) {
            visitor(entry, result);
            break;
        }
    freeifaddrs(all);
    return entry ? 0
                 : failed("interface", ENODEV, NULL, "there is no interface %s in this network namespace",
                          interface);
}

static void copy_mac(const struct ifaddrs *entry, void *result) {
    memcpy(result, ((const struct sockaddr_ll *)entry->ifa_addr)->sll_addr, ETH_ALEN);
}

int link_mac(const char *interface, uint8_t mac[6]) { return visit(interface, copy_mac, mac); }

// As the kernel's xdp_ok_fwd_dev(): there is always room for a tag.
int link_largest_frame(const char *interface, unsigned *bytes) {
    struct ifreq request = {0};
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    strncpy(request.ifr_name, interface, sizeof(request.ifr_name) - 1);
    const int error = fd < 0 || ioctl(fd, SIOCGIFMTU, &request) ? errno : 0;
    if (fd >= 0)
        close(fd);
    *bytes = request.ifr_mtu + ETH_HLEN + VLAN_BYTES;
    return error ? failed("interface", error, NULL, "the MTU of %s cannot be read", interface) : 0;
}

static void add_failures(const struct ifaddrs *entry, void *result) {
    const struct rtnl_link_stats *stats = entry->ifa_data;

    *(uint32_t *)result = stats ? stats->tx_dropped + stats->tx_errors : 0;
}

static void copy_counts(const struct ifaddrs *entry, void *result) {
    const struct rtnl_link_stats *stats = entry->ifa_data;

    if (stats)
        *(struct link_counts *)result = (struct link_counts){stats->tx_packets, stats->rx_packets};
}

int link_counts(const char *interface, struct link_counts *counts) {
    return visit(interface, copy_counts, counts);
}

int link_tx_failures(const char *interface, uint32_t *failures) {
    return visit(interface, add_failures, failures);
}
