// SPDX-License-Identifier: Apache-2.0
#include "offers.h"
#include "fail.h"
#include "options.h"
#include "phc.h"

#include <errno.h>
#include <linux/ethtool.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

// linux/netdev.h, which Debian 12 does not have.
#define NETDEV_FAMILY "netdev"
#define NETDEV_DEV_GET 1
#define NETDEV_DEV_IFINDEX 1
#define NETDEV_DEV_XSK_FEATURES 6

struct request {
    struct nlmsghdr header;
    struct genlmsghdr command;
    struct nlattr attribute;
    char value[16];
};

// Finds an attribute in a generic message. Returns NULL where it has none so long.
static const void *attribute(const struct nlmsghdr *message, unsigned type, size_t least) {
    const char *at = (const char *)NLMSG_DATA(message) + GENL_HDRLEN;
    const char *end = (const char *)message + message->nlmsg_len;
    const struct nlattr *one;

    for (; at + NLA_HDRLEN <= end; at += NLA_ALIGN(one->nla_len)) {
        one = (const struct nlattr *)at;
        if (one->nla_len < NLA_HDRLEN || at + one->nla_len > end)
            return NULL;
        if ((one->nla_type & NLA_TYPE_MASK) == type)
            return one->nla_len >= NLA_HDRLEN + least ? at + NLA_HDRLEN : NULL;
    }
    return NULL;
}

// The error that a reply is, or that it is none.
static int refusal_in(const struct nlmsghdr *message, size_t bytes) {
    if (bytes < NLMSG_HDRLEN || message->nlmsg_len > bytes || message->nlmsg_len < NLMSG_LENGTH(GENL_HDRLEN))
        return -EBADMSG;
    if (message->nlmsg_type != NLMSG_ERROR)
        return 0;
    return message->nlmsg_len < NLMSG_LENGTH(sizeof(struct nlmsgerr))
               ? -EBADMSG
               : ((const struct nlmsgerr *)NLMSG_DATA(message))->error ?: -EBADMSG;
}

// Returns the reply's bytes, or a negative errno.
static ssize_t ask(int fd, unsigned family, unsigned command, unsigned type, const void *value, size_t size,
                   void *reply, size_t room) {
    struct request request = {
        .header = {.nlmsg_type = family, .nlmsg_flags = NLM_F_REQUEST},
        .command = {.cmd = command, .version = 1},
        .attribute = {.nla_type = type, .nla_len = NLA_HDRLEN + size},
    };

    request.header.nlmsg_len = NLMSG_LENGTH(GENL_HDRLEN) + NLA_HDRLEN + NLA_ALIGN(size);
    memcpy(request.value, value, size);
    if (send(fd, &request, request.header.nlmsg_len, 0) < 0)
        return -errno;
    const ssize_t bytes = recv(fd, reply, room, 0);
    return bytes < 0 ? -errno : refusal_in(reply, bytes) ?: bytes;
}

int offers_parse(const void *reply, size_t bytes, uint64_t *offers) {
    int error = refusal_in(reply, bytes);
    const void *found = error ? NULL : attribute(reply, NETDEV_DEV_XSK_FEATURES, sizeof(*offers));

    if (error)
        return error;
    if (!found)
        return -ENODATA;
    memcpy(offers, found, sizeof(*offers));
    return 0;
}

static int read_by(int fd, unsigned ifindex, uint64_t *offers) {
    char reply[8192] __attribute__((aligned(NLMSG_ALIGNTO)));
    const uint32_t index = ifindex;
    ssize_t bytes = ask(fd, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME, NETDEV_FAMILY,
                        sizeof(NETDEV_FAMILY), reply, sizeof(reply));
    if (bytes < 0)
        return bytes;
    const uint16_t *family = attribute((void *)reply, CTRL_ATTR_FAMILY_ID, sizeof(*family));
    if (!family)
        return -EBADMSG;
    bytes = ask(fd, *family, NETDEV_DEV_GET, NETDEV_DEV_IFINDEX, &index, sizeof(index), reply, sizeof(reply));
    return bytes < 0 ? bytes : offers_parse(reply, bytes, offers);
}

int offers_read(unsigned ifindex, uint64_t *offers) {
    const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC);

    if (fd < 0)
        return -errno;
    int error = read_by(fd, ifindex, offers);
    close(fd);
    return error;
}

const char *offers_text(uint64_t offers) {
    static const struct {
        uint64_t bit;
        const char *name;
    } names[] = {{OFFERS_TIMESTAMP, "tx-timestamp"},
                 {OFFERS_CHECKSUM, "tx-checksum"},
                 {OFFERS_LAUNCH_TIME, "tx-launch-time-fifo"}};
    static char text[64];

    text[0] = 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (offers & names[i].bit)
            snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s", text[0] ? ", " : "",
                     names[i].name);
    return text[0] ? text : "none";
}

static const char *driver_of(const char *interface) {
    static struct ethtool_drvinfo info;
    struct ifreq request = {.ifr_data = (char *)&info};
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    info = (struct ethtool_drvinfo){.cmd = ETHTOOL_GDRVINFO};
    strncpy(request.ifr_name, interface, sizeof(request.ifr_name) - 1);
    const bool told = fd >= 0 && !ioctl(fd, SIOCETHTOOL, &request);
    if (fd >= 0)
        close(fd);
    return told ? info.driver : "unknown";
}

static int refuse_untold(const char *interface, int error) {
    const char *why = error == -ENOENT    ? "Linux 6.3 and newer have the netlink family netdev"
                      : error == -ENODATA ? "Linux 6.8 and newer tell its xsk-features"
                                          : strerror(-error);

    return failed("stamps", EOPNOTSUPP, NULL,
                  "the kernel does not tell whether %s (driver %s) offers tx-timestamp: %s", interface,
                  driver_of(interface), why);
}

static int require_one_clock(const struct options *options) {
    const int sends = phc_index(options->interface), receives = phc_index(options->receive_on);

    if (sends < 0)
        return failed("stamps", EOPNOTSUPP, NULL, "%s (driver %s) offers tx-timestamp, but has no PTP clock",
                      options->interface, driver_of(options->interface));
    if (sends == receives)
        return 0;
    return failed(
        "stamps", EOPNOTSUPP, NULL,
        "%s and %s have not one PTP clock but two (%d and %d): a latency between them would be theirs",
        options->interface, options->receive_on, sends, receives);
}

int offers_require_stamps(const struct options *options, unsigned ifindex) {
    uint64_t offers = 0;
    int error = offers_read(ifindex, &offers);

    if (error)
        return refuse_untold(options->interface, error);
    if (!(offers & OFFERS_TIMESTAMP))
        return failed("stamps", EOPNOTSUPP, NULL,
                      "%s (driver %s) does not offer tx-timestamp: its xsk-features are: %s",
                      options->interface, driver_of(options->interface), offers_text(offers));
    return require_one_clock(options);
}
