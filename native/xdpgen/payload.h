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

#define FRAME_HEAD_WORDS 6 /* headers, magic and flow: the same in every frame of a flow */
#define FRAME_STAMP_WORD 6
#define FRAME_SEQUENCE_WORD 7
#define TEST_FRAME_BYTES 60 /* the shortest: 64 less the FCS */

struct frame_head {
    __u64 words[FRAME_HEAD_WORDS];
};
