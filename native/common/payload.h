// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/types.h>

// A test frame: Ethernet, perhaps a VLAN tag, IPv4 or IPv6, UDP, and 18 bytes of payload. The sender of one
// writes the same bytes:
//
//   IPv4   IPv4, tagged   IPv6, tagged or not
//   42..45    50..53      66..69   magic, its low 16 bits xor the run id   (network byte order)
//   46..47    54..55      70..71   bit 15: stamped; bits 0..14: label      (network byte order)
//   48..55    56..63      72..79   time the frame was made, ns             (the sender's byte order)
//   56..59    64..67      80..83   sequence number within its stream       (network byte order)
//
// A stream is what one sending CPU or queue numbers. It needs no field: stream = flow mod streams, because a
// stream sends only the flows that leave this remainder. A stream sends its flows in turn, from the first one
// in each burst, or draws them. The label is the flow; where flows are drawn or replaced, or are more than
// labels, it is the stream, and the number tells the flow.
//
// All of it lies on 8-byte words of the frame, which is how both sides read and write it: the head's last
// word ends with magic and flow, the next word is the stamp, the first half of the one after it the sequence
// number. Where the UDP header does not end there, zeros fill the gap.
#define PAYLOAD_MAGIC 0x78646c62u // "xdlb"
#define PAYLOAD_RUN_ID_MASK 0xffffu
#define PAYLOAD_STAMPED 0x8000u
#define PAYLOAD_LABEL_MASK 0x7fffu
#define PAYLOAD_LABELS (PAYLOAD_LABEL_MASK + 1)
#define MAX_FLOWS (1u << 20)

#define ETHERNET_BYTES 14u
#define VLAN_BYTES 4u
#define IP_BYTES 20u
#define IPV6_BYTES 40u
#define UDP_BYTES 8u

#define NO_VLAN 0xffffu
#define VLAN_ID_MASK 0x0fffu

// Where the parts of a run's frames are, in bytes from their start, or in words.
struct frame_layout {
    __u32 vlan; // the tag's id, or NO_VLAN
    __u32 ip_version;
    __u32 ip_at, udp_at;
    __u32
        sum_at; // the UDP checksum, which IPv6 asks for; 0: it stays 0, which in IPv4 says that there is none
    __u32 head_words; // headers, magic and flow: the same in every frame of a flow but for the checksum
};

static inline struct frame_layout frame_layout(__u32 vlan, __u32 ip_version) {
    const __u32 ip_at = ETHERNET_BYTES + (vlan == NO_VLAN ? 0 : VLAN_BYTES);
    const __u32 udp_at = ip_at + (ip_version == 6 ? IPV6_BYTES : IP_BYTES);

    return (struct frame_layout){
        .vlan = vlan,
        .ip_version = ip_version,
        .ip_at = ip_at,
        .udp_at = udp_at,
        .sum_at = ip_version == 6 ? udp_at + 6 : 0,
        .head_words = (udp_at + UDP_BYTES + 6 + 7) / 8,
    };
}

#define PLAIN_HEAD_WORDS 6 // IPv4 without a tag
#define PLAIN_FLOW_WORD 3  // the first of those that differ between flows: from here to the head's end
#define MOST_HEAD_WORDS 9

// Where magic and flow begin.
static inline __attribute__((always_inline)) __u32 frame_payload_at(const struct frame_layout *layout) {
    return layout->head_words * 8 - 6;
}

// The shortest frame with such a head, without FCS: 60, 68 or 84.
static inline __u32 frame_least_bytes(const struct frame_layout *layout) {
    return layout->head_words * 8 + 12;
}

struct frame_head {
    __u64 words[MOST_HEAD_WORDS];
};

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define FRAME_WORD(value) __builtin_bswap64(value)
#define FRAME_HALF(value) __builtin_bswap16(value)
#else
#define FRAME_WORD(value) ((__u64)(value))
#define FRAME_HALF(value) ((__u16)(value))
#endif

// Sums of RFC 1071: any 16 aligned bits of a word count alike, in any byte order.
static inline __attribute__((always_inline)) __u64 frame_sum_word(__u64 word) {
    return (word >> 32) + (__u32)word;
}

static inline __attribute__((always_inline)) __u32 frame_sum_fold(__u64 sum) {
    sum = (sum & 0xffff) + ((sum >> 16) & 0xffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    return (sum & 0xffff) + (sum >> 16);
}

// What tells one flow's frames from another's; addresses and port in host byte order.
struct frame_flow {
    __u32 src_ip, dst_ip;
    __u16 src_port, label;
};

// Writes a flow into a head of none, in whose sum's place is the sum, not complemented, of what all flows
// share: of IPv4's header, or of what IPv6's UDP checksum covers.
static inline __attribute__((always_inline)) void frame_write_flow(__u16 *halves, __u32 ip_version,
                                                                   __u32 ip_at, __u32 udp_at,
                                                                   __u32 head_words, struct frame_flow flow) {
    const __u16 from[] = {FRAME_HALF(flow.src_ip >> 16), FRAME_HALF(flow.src_ip)};
    const __u16 to[] = {FRAME_HALF(flow.dst_ip >> 16), FRAME_HALF(flow.dst_ip)};
    const __u16 port = FRAME_HALF(flow.src_port), label = FRAME_HALF(flow.label);
    const __u32 addresses = (__u32)from[0] + from[1] + to[0] + to[1];
    __u16 *ip = halves + ip_at / 2, *udp = halves + udp_at / 2;

    if (ip_version == 6) {
        ip[10] = from[0];
        ip[11] = from[1];
        ip[18] = to[0];
        ip[19] = to[1];
        udp[3] = frame_sum_fold((__u64)udp[3] + addresses + port + label);
    } else {
        ip[6] = from[0];
        ip[7] = from[1];
        ip[8] = to[0];
        ip[9] = to[1];
        ip[5] = ~frame_sum_fold((__u64)ip[5] + addresses);
    }
    udp[0] = port;
    halves[4 * head_words - 1] = label;
}

// The words of a plain head that differ between flows.
struct flow_words {
    __u64 words[PLAIN_HEAD_WORDS - PLAIN_FLOW_WORD];
};

// Writes them into a head of none, as frame_write_flow() does.
static inline __attribute__((always_inline)) void
frame_write_flow_words(struct flow_words *to, const volatile __u64 *head, struct frame_flow flow) {
    const __u64 sum = (FRAME_WORD(head[3]) >> 48) + flow.src_ip + flow.dst_ip;
    const __u64 check = (__u16)~frame_sum_fold(sum);

    to->words[0] = FRAME_WORD(check << 48 | (__u64)flow.src_ip << 16 | flow.dst_ip >> 16);
    to->words[1] = head[4] | FRAME_WORD((__u64)flow.dst_ip << 48 | (__u64)flow.src_port << 32);
    to->words[2] = head[5] | FRAME_WORD((__u64)flow.label);
}

// The UDP checksum of a frame: `rest` is the sum of what every frame of its flow has, which the head holds in
// the checksum's place. A checksum of 0 is written as its other form, because 0 means that there is none (RFC
// 768).
static inline __attribute__((always_inline)) __u16 frame_udp_sum(__u16 rest, __u64 stamp, __u32 sequence,
                                                                 __u32 stamped) {
    const __u64 sum = rest + frame_sum_word(stamp) + sequence + (stamped ? FRAME_HALF(PAYLOAD_STAMPED) : 0);
    const __u16 found = ~frame_sum_fold(sum);

    return found ? found : 0xffff;
}

// The sum of RFC 1071 over the IPv4 header of a frame without a tag, bytes 14 to 33.
static inline __attribute__((always_inline)) int frame_ip_sum_holds(const __u64 *words) {
    const __u64 ends = (words[1] & FRAME_WORD(0xffffull)) | (words[4] & FRAME_WORD(0xffffull << 48));
    __u64 sum = frame_sum_word(words[2]) + frame_sum_word(words[3]) + frame_sum_word(ends);

    sum = (sum & 0xffff) + ((sum >> 16) & 0xffff) + (sum >> 32);
    return (sum & 0xffff) + (sum >> 16) == 0xffff;
}

// For a frame without a tag: IPv4 without options or fragments, UDP, both lengths, a header checksum that
// holds.
static inline __attribute__((always_inline)) int frame_is_plain_ipv4(const __u64 *words, __u32 bytes) {
    const __u64 ip_bytes = bytes - ETHERNET_BYTES;
    const __u64 kind = (words[1] ^ FRAME_WORD(0x08004500ull)) & FRAME_WORD(0xffffff00ull);
    const __u64 whole = (words[2] ^ FRAME_WORD(ip_bytes << 48 | 17)) & FRAME_WORD(0xffff00003fff00ffull);
    const __u64 udp = (words[4] ^ FRAME_WORD(ip_bytes - IP_BYTES)) & FRAME_WORD(0xffffull);

    return !(kind | whole | udp) && frame_ip_sum_holds(words);
}

// The same from the IP header on, wherever it is.
static inline __attribute__((always_inline)) int frame_is_ipv4(const __u16 *ip, __u32 bytes) {
    __u64 sum = 0;

    for (int i = 0; i < 10; i++)
        sum += ip[i];
    return (ip[0] & FRAME_HALF(0xff00)) == FRAME_HALF(0x4500) && ip[1] == FRAME_HALF(bytes) &&
           !(ip[3] & FRAME_HALF(0x3fff)) && (ip[4] & FRAME_HALF(0xff)) == FRAME_HALF(17) &&
           frame_sum_fold(sum) == 0xffff && ip[12] == FRAME_HALF(bytes - IP_BYTES);
}

// IPv6 without extension headers, UDP, both lengths.
static inline __attribute__((always_inline)) int frame_is_ipv6(const __u16 *ip, __u32 bytes) {
    return (ip[0] & FRAME_HALF(0xf000)) == FRAME_HALF(0x6000) && ip[2] == FRAME_HALF(bytes - IPV6_BYTES) &&
           (ip[3] & FRAME_HALF(0xff00)) == FRAME_HALF(17 << 8) && ip[22] == FRAME_HALF(bytes - IPV6_BYTES);
}

// Whether the headers are those of a test frame of so many bytes (without FCS). A DUT may change what else
// there is: addresses, ports, TOS, id, TTL, the tag's priority. The UDP checksum is not looked at.
static inline __attribute__((always_inline)) int frame_has_shape(const __u64 *words, __u32 bytes,
                                                                 const struct frame_layout *layout) {
    const __u16 *halves = (const __u16 *)words;
    const __u32 ip = layout->ip_at / 2;

    if (layout->head_words == PLAIN_HEAD_WORDS)
        return frame_is_plain_ipv4(words, bytes);
    if (layout->vlan != NO_VLAN && (halves[6] != FRAME_HALF(0x8100) ||
                                    (halves[7] & FRAME_HALF(VLAN_ID_MASK)) != FRAME_HALF(layout->vlan)))
        return 0;
    if (layout->ip_version == 6)
        return halves[ip - 1] == FRAME_HALF(0x86dd) && frame_is_ipv6(halves + ip, bytes - layout->ip_at);
    return halves[ip - 1] == FRAME_HALF(0x0800) && frame_is_ipv4(halves + ip, bytes - layout->ip_at);
}
