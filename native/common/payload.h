/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <linux/types.h>

/*
 * A test frame: Ethernet, IPv4, UDP, and 18 bytes of payload. The sender of one
 * writes the same bytes:
 *
 *   42..45  magic, its low 16 bits xor the run id     (network byte order)
 *   46..47  bit 15: stamped; bits 0..14: flow         (network byte order)
 *   48..55  time the frame was made, ns               (the sender's clock and byte order: only it reads them)
 *   56..59  sequence number within its stream         (network byte order)
 *
 * A stream is what one sending CPU or queue numbers. It needs no field: stream
 * = flow mod streams, because a stream sends only the flows that leave this
 * remainder.
 *
 * All of it lies on 8-byte words of the frame, which is how both sides read and
 * write it: five words of headers, word 5 ends with magic and flow, word 6 is
 * the stamp, the lower half of word 7 the sequence number.
 */
#define PAYLOAD_MAGIC 0x78646c62u /* "xdlb" */
#define PAYLOAD_RUN_ID_MASK 0xffffu
#define PAYLOAD_STAMPED 0x8000u
#define PAYLOAD_FLOW_MASK 0x7fffu
#define MAX_FLOWS (PAYLOAD_FLOW_MASK + 1)

#define PAYLOAD_OFFSET 42
#define FRAME_HEAD_WORDS 6 /* headers, magic and flow: the same in every frame of a flow */
#define FRAME_STAMP_WORD 6
#define FRAME_SEQUENCE_WORD 7
#define TEST_FRAME_BYTES 60 /* the shortest: 64 less the FCS */

struct frame_head {
    __u64 words[FRAME_HEAD_WORDS];
};

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define FRAME_WORD(value) __builtin_bswap64(value)
#else
#define FRAME_WORD(value) ((__u64)(value))
#endif

#define ETHERNET_BYTES 14u
#define IP_BYTES 20u

/* The sum of RFC 1071 over the IP header, bytes 14 to 33. Any 16 aligned bits of a word count alike. */
static inline __attribute__((always_inline)) int frame_ip_sum_holds(const __u64 *words) {
    const __u64 ends = (words[1] & FRAME_WORD(0xffffull)) | (words[4] & FRAME_WORD(0xffffull << 48));
    __u64 sum =
        (words[2] >> 32) + (__u32)words[2] + (words[3] >> 32) + (__u32)words[3] + (ends >> 32) + (__u32)ends;

    sum = (sum & 0xffff) + ((sum >> 16) & 0xffff) + (sum >> 32);
    return (sum & 0xffff) + (sum >> 16) == 0xffff;
}

/*
 * Whether the headers are those of a test frame of so many bytes (without FCS): IPv4 without options or
 * fragments, UDP, both lengths, a header checksum that holds. A DUT may change what else there is: addresses,
 * ports, TOS, id, TTL.
 */
static inline __attribute__((always_inline)) int frame_has_shape(const __u64 *words, __u32 bytes) {
    const __u64 ip_bytes = bytes - ETHERNET_BYTES;
    const __u64 kind = (words[1] ^ FRAME_WORD(0x08004500ull)) & FRAME_WORD(0xffffff00ull);
    const __u64 whole = (words[2] ^ FRAME_WORD(ip_bytes << 48 | 17)) & FRAME_WORD(0xffff00003fff00ffull);
    const __u64 udp = (words[4] ^ FRAME_WORD(ip_bytes - IP_BYTES)) & FRAME_WORD(0xffffull);

    return !(kind | whole | udp) && frame_ip_sum_holds(words);
}
