// SPDX-License-Identifier: Apache-2.0
#include "test_frame.h"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <netinet/in.h>
#include <string.h>

static unsigned short header_checksum(const struct iphdr *ip) {
    const unsigned short *word = (const unsigned short *)ip;
    unsigned sum = 0;
    for (size_t i = 0; i < sizeof(*ip) / 2; i++)
        sum += word[i];
    sum = (sum & 0xffff) + (sum >> 16);
    return ~(sum + (sum >> 16));
}

void fill_test_frame(unsigned char *frame, size_t length) {
    struct ethhdr ethernet = {.h_dest = {2, 0, 0, 0, 0, 2}, .h_source = {2, 0, 0, 0, 0, 1}};
    struct iphdr ip = {.version = 4, .ihl = 5, .ttl = 64, .protocol = IPPROTO_UDP};
    struct udphdr udp = {.source = htons(1024), .dest = htons(50220)};

    ethernet.h_proto = htons(ETH_P_IP);
    ip.tot_len = htons(length - sizeof(ethernet));
    ip.saddr = htonl(0xc6120001); // 198.18.0.1, of the range for benchmarks (RFC 2544)
    ip.daddr = htonl(0xc6120002);
    ip.check = header_checksum(&ip);
    udp.len = htons(length - sizeof(ethernet) - sizeof(ip));

    memset(frame, 0, length);
    memcpy(frame, &ethernet, sizeof(ethernet));
    memcpy(frame + sizeof(ethernet), &ip, sizeof(ip));
    memcpy(frame + sizeof(ethernet) + sizeof(ip), &udp, sizeof(udp));
}
