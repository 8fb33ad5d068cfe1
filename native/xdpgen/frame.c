// SPDX-License-Identifier: Apache-2.0
#include "frame.h"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <netinet/ip6.h>
#include <stddef.h>
#include <string.h>

uint32_t frame_magic(const struct options *options) { return PAYLOAD_MAGIC ^ options->run_id; }

// RFC 1071, not yet folded.
static uint64_t sum_of(const void *bytes, size_t size) {
    uint16_t word;
    uint64_t sum = 0;

    for (size_t at = 0; at < size; at += sizeof(word)) {
        memcpy(&word, (const uint8_t *)bytes + at, sizeof(word));
        sum += word;
    }
    return sum;
}

static void put(uint8_t *head, unsigned at, const void *value, size_t size) {
    memcpy(head + at, value, size);
}

static void put_ethernet(uint8_t *head, const struct options *options) {
    const uint16_t type = htons(options->layout.ip_version == 6 ? ETH_P_IPV6 : ETH_P_IP);
    const uint16_t tag[] = {htons(ETH_P_8021Q), htons(options->layout.vlan)};

    put(head, 0, options->dst_mac, ETH_ALEN);
    put(head, ETH_ALEN, options->src_mac, ETH_ALEN);
    if (options->layout.vlan != NO_VLAN)
        put(head, 2 * ETH_ALEN, tag, sizeof(tag));
    put(head, options->layout.ip_at - sizeof(type), &type, sizeof(type));
}

static void put_ipv4(uint8_t *head, const struct options *options, uint16_t ip_bytes) {
    struct iphdr ip = {
        .version = 4,
        .ihl = 5,
        .tot_len = htons(ip_bytes),
        .ttl = 64,
        .protocol = IPPROTO_UDP,
    };

    ip.check = frame_sum_fold(sum_of(&ip, sizeof(ip)));
    put(head, options->layout.ip_at, &ip, sizeof(ip));
}

// The addresses are in the prefix for benchmarks (RFC 5180), with the IPv4 address at the end.
static void put_ipv6(uint8_t *head, const struct options *options, uint16_t ip_bytes) {
    const struct ip6_hdr ip = {
        .ip6_flow = htonl(6u << 28),
        .ip6_plen = htons(ip_bytes - sizeof(ip)),
        .ip6_nxt = IPPROTO_UDP,
        .ip6_hlim = 64,
        .ip6_src.s6_addr = {0x20, 0x01, 0x00, 0x02},
        .ip6_dst.s6_addr = {0x20, 0x01, 0x00, 0x02},
    };

    put(head, options->layout.ip_at, &ip, sizeof(ip));
}

// What the UDP checksum covers and every frame has: the pseudo header of RFC 8200, port, length and magic.
static uint16_t common_sum(const uint8_t *head, const struct options *options) {
    const unsigned from = options->layout.ip_at + offsetof(struct ip6_hdr, ip6_src);
    uint16_t udp_bytes;

    memcpy(&udp_bytes, head + options->layout.udp_at + offsetof(struct udphdr, len), sizeof(udp_bytes));
    return frame_sum_fold(sum_of(head + from, 8 * options->layout.head_words - from) + udp_bytes +
                          htons(IPPROTO_UDP));
}

void frame_head_fill(struct frame_head *head, const struct options *options) {
    const struct frame_layout *layout = &options->layout;
    const uint16_t ip_bytes = options->sizes.largest - layout->ip_at;
    const uint32_t magic = htonl(frame_magic(options));
    uint8_t *bytes = (uint8_t *)head;
    struct udphdr udp = {
        .dest = htons(options->dst_port),
        .len = htons(ip_bytes - (layout->udp_at - layout->ip_at)),
    };

    memset(head, 0, sizeof(*head));
    put_ethernet(bytes, options);
    (layout->ip_version == 6 ? put_ipv6 : put_ipv4)(bytes, options, ip_bytes);
    put(bytes, layout->udp_at, &udp, sizeof(udp));
    put(bytes, frame_payload_at(layout), &magic, sizeof(magic));
    if (layout->sum_at) {
        udp.check = common_sum(bytes, options);
        put(bytes, layout->udp_at, &udp, sizeof(udp));
    }
}
