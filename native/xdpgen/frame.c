// SPDX-License-Identifier: Apache-2.0
#include "frame.h"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <string.h>

struct head_bytes {
    struct ethhdr eth;
    struct iphdr ip;
    struct udphdr udp;
    uint32_t magic;
    uint16_t flow;
} __attribute__((packed));

_Static_assert(sizeof(struct head_bytes) == sizeof(struct frame_head), "the headers fill the words");

uint32_t frame_magic(const struct options *options) { return PAYLOAD_MAGIC ^ options->run_id; }

/* RFC 1071. */
static uint16_t ip_checksum(struct iphdr ip) {
    uint16_t words[sizeof(ip) / 2];
    uint32_t sum = 0;

    memcpy(words, &ip, sizeof(words));
    for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        sum += words[i];
    sum = (sum & 0xffff) + (sum >> 16);
    return ~(sum + (sum >> 16));
}

static uint32_t stride_ip(uint32_t ip, uint32_t stride, unsigned flow) {
    return htonl(ntohl(ip) + stride * flow);
}

void frame_head_fill(struct frame_head *head, const struct options *options, unsigned flow) {
    uint16_t ip_bytes = options->frame_bytes - ETH_FCS_LEN - sizeof(struct ethhdr);
    unsigned address = flow % options->flows;
    struct head_bytes bytes = {
        .eth.h_proto = htons(ETH_P_IP),
        .ip = {.version = 4, .ihl = 5, .tot_len = htons(ip_bytes), .ttl = 64, .protocol = IPPROTO_UDP},
        .udp.source = htons(options->src_port + options->port_stride * address),
        .udp.dest = htons(options->dst_port),
        .udp.len = htons(ip_bytes - sizeof(struct iphdr)),
        .magic = htonl(frame_magic(options)),
        .flow = htons(flow),
    };

    memcpy(bytes.eth.h_source, options->src_mac, ETH_ALEN);
    memcpy(bytes.eth.h_dest, options->dst_mac, ETH_ALEN);
    bytes.ip.saddr = stride_ip(options->src_ip, options->src_ip_stride, address);
    bytes.ip.daddr = stride_ip(options->dst_ip, options->dst_ip_stride, address);
    bytes.ip.check = ip_checksum(bytes.ip);
    memcpy(head, &bytes, sizeof(*head));
}
