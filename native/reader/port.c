// SPDX-License-Identifier: Apache-2.0
#include "settings.h"

#include <errno.h>
#include <linux/ethtool.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

// ---- ethtool ----

#define MOST_WORDS 32 // of a request
#define MOST_NAMES 16

// The numbers of a request that are settings, in the order of its struct in linux/ethtool.h. NULL is left
// out.
static const struct {
    const char *name;
    unsigned request, words;
    const char *names[MOST_NAMES];
} numbers[] = {
    {"port.rings",
     ETHTOOL_GRINGPARAM,
     sizeof(struct ethtool_ringparam) / 4,
     {NULL, NULL, NULL, NULL, "rx", "rx-mini", "rx-jumbo", "tx"}},
    {"port.channels",
     ETHTOOL_GCHANNELS,
     sizeof(struct ethtool_channels) / 4,
     {NULL, NULL, NULL, NULL, "rx", "tx", "other", "combined"}},
    {"port.pause", ETHTOOL_GPAUSEPARAM, sizeof(struct ethtool_pauseparam) / 4, {"autoneg", "rx", "tx"}},
    {"port.coalesce",
     ETHTOOL_GCOALESCE,
     sizeof(struct ethtool_coalesce) / 4,
     {"rx-usecs", "rx-frames", "rx-usecs-irq", "rx-frames-irq", "tx-usecs", "tx-frames", "tx-usecs-irq",
      "tx-frames-irq", NULL, "adaptive-rx", "adaptive-tx"}},
};
#define ADAPTIVE_RX 9 // place of the switch: the driver then sets the numbers of this direction itself
#define ADAPTIVE_TX 10

static int ask(int fd, const char *device, void *request) {
    struct ifreq port = {.ifr_data = request};

    strncpy(port.ifr_name, device, IFNAMSIZ - 1);
    return ioctl(fd, SIOCETHTOOL, &port);
}

static bool chosen_by_driver(unsigned request, const unsigned *values, int place) {
    if (request != ETHTOOL_GCOALESCE)
        return false;
    return (place < 4 && values[ADAPTIVE_RX]) || (place >= 4 && place < 8 && values[ADAPTIVE_TX]);
}

static void print_numbers(FILE *out, int fd, const char *device) {
    for (size_t row = 0; row < sizeof(numbers) / sizeof(numbers[0]); row++) {
        unsigned words[MOST_WORDS] = {numbers[row].request}, *values = words + 1;
        if (ask(fd, device, words))
            continue; // the driver has no such settings
        fprintf(out, "%s\t", numbers[row].name);
        for (int i = 0; i < MOST_NAMES && i + 1 < (int)numbers[row].words; i++)
            if (numbers[row].names[i] && values[i] && !chosen_by_driver(numbers[row].request, values, i))
                fprintf(out, "%s %u ", numbers[row].names[i], values[i]);
        fputc('\n', out);
    }
}

static unsigned count_features(int fd, const char *device) {
    struct {
        struct ethtool_sset_info info;
        unsigned count;
    } asked = {.info = {.cmd = ETHTOOL_GSSET_INFO, .sset_mask = 1ull << ETH_SS_FEATURES}};

    return ask(fd, device, &asked) || !asked.info.sset_mask ? 0 : asked.count;
}

// The names of the features that are on.
static void print_features(FILE *out, int fd, const char *device) {
    unsigned count = count_features(fd, device), blocks = (count + 31) / 32;
    struct ethtool_gstrings *names = calloc(1, sizeof(*names) + (size_t)count * ETH_GSTRING_LEN);
    struct ethtool_gfeatures *features = calloc(1, sizeof(*features) + blocks * sizeof(*features->features));

    if (count && names && features) {
        *names =
            (struct ethtool_gstrings){.cmd = ETHTOOL_GSTRINGS, .string_set = ETH_SS_FEATURES, .len = count};
        *features = (struct ethtool_gfeatures){.cmd = ETHTOOL_GFEATURES, .size = blocks};
    }
    if (!count || !names || !features || ask(fd, device, names) || ask(fd, device, features)) {
        fprintf(out, "port.features\tabsent: %s\n", strerror(errno));
    } else {
        fprintf(out, "port.features\t");
        for (unsigned i = 0; i < count; i++)
            if (features->features[i / 32].active >> i % 32 & 1)
                fprintf(out, "%.*s ", ETH_GSTRING_LEN, names->data + (size_t)i * ETH_GSTRING_LEN);
        fputc('\n', out);
    }
    free(names);
    free(features);
}

// ---- what stands behind the port ----

static const char *kind_of(const struct nlmsghdr *message) {
    const struct tcmsg *qdisc = NLMSG_DATA(message);
    int left = (int)(message->nlmsg_len - NLMSG_LENGTH(sizeof(*qdisc)));

    for (const struct rtattr *part = (const void *)((const char *)qdisc + NLMSG_ALIGN(sizeof(*qdisc)));
         RTA_OK(part, left); part = RTA_NEXT(part, left))
        if (part->rta_type == TCA_KIND)
            return RTA_DATA(part);
    return "?";
}

// Prints the qdiscs of one piece of the answer; false at its end.
static bool print_piece(FILE *out, const char *piece, unsigned length, unsigned ifindex, char *last) {
    const struct nlmsghdr *message = (const void *)piece;

    for (; NLMSG_OK(message, length); message = NLMSG_NEXT(message, length)) {
        const struct tcmsg *qdisc = NLMSG_DATA(message);
        if (message->nlmsg_type != RTM_NEWQDISC)
            return false;
        const char *kind = kind_of(message);
        if (qdisc->tcm_ifindex != (int)ifindex || !strncmp(last, kind, IFNAMSIZ))
            continue; // each queue has one of its own
        snprintf(last, IFNAMSIZ, "%s", kind);
        fprintf(out, "%s ", kind);
    }
    return true;
}

// The kinds of the port's qdiscs: clsact is one, where tc's programs are attached.
static void print_qdiscs(FILE *out, unsigned ifindex) {
    static char piece[1 << 15] __attribute__((aligned(8)));
    struct {
        struct nlmsghdr header;
        struct tcmsg qdisc;
    } asked = {
        .header = {sizeof(asked), RTM_GETQDISC, NLM_F_REQUEST | NLM_F_DUMP, 1, 0},
        .qdisc = {.tcm_family = AF_UNSPEC},
    };
    char last[IFNAMSIZ] = "";
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    ssize_t got = fd < 0 ? -1 : send(fd, &asked, sizeof(asked), 0);

    fprintf(out, "port.qdiscs\t");
    while (got > 0 && (got = recv(fd, piece, sizeof(piece), 0)) > 0)
        if (!print_piece(out, piece, got, ifindex, last))
            break;
    if (got < 0)
        fprintf(out, "absent: %s", strerror(errno));
    fputc('\n', out);
    if (fd >= 0)
        close(fd);
}

void print_port(FILE *out, const char *device) {
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd >= 0) {
        print_numbers(out, fd, device);
        print_features(out, fd, device);
        close(fd);
    }
    print_qdiscs(out, if_nametoindex(device));
}
