// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "payload.h"

// The sizes of a run's frames, without FCS: one, or a cycle of several (IMIX). A stream sends the sizes of
// the cycle in turn: the frame with number n has size n modulo their count, so the receiver knows it too.
#define MOST_SIZES 64
#define MOST_FRAME_BYTES 9216 // with FCS

struct frame_sizes {
    __u32 count; // of the cycle's frames
    __u32 largest;
    __u16 bytes[MOST_SIZES];
};

// Which of the cycle's sizes a frame has.
static inline __attribute__((always_inline)) __u32 frame_size_index(__u32 count, __u64 number) {
    return count == 1 ? 0 : number % count & (MOST_SIZES - 1);
}

// ~m + m' of RFC 1624, for a length that changes in a sum.
static inline __attribute__((always_inline)) __u32 frame_length_change(__u32 from, __u32 to) {
    return (__u16)~FRAME_HALF(from) + (__u32)FRAME_HALF(to);
}

// Gives the head of a frame of `from` bytes, without FCS, the lengths of one of `to` bytes, and the sums that
// cover them: that of IPv4's header, or what stands in the place of IPv6's UDP checksum (frame_udp_sum).
static inline __attribute__((always_inline)) void
frame_change_size(void *frame, __u32 ip_version, __u32 ip_at, __u32 udp_at, __u32 from, __u32 to) {
    __u16 *ip = (__u16 *)((char *)frame + ip_at), *udp = (__u16 *)((char *)frame + udp_at);

    if (ip_version == 6) {
        ip[2] = FRAME_HALF(to - udp_at);
        udp[3] = frame_sum_fold(udp[3] + 2 * frame_length_change(from - udp_at, to - udp_at));
    } else {
        ip[1] = FRAME_HALF(to - ip_at);
        ip[5] = ~frame_sum_fold((__u16)~ip[5] + frame_length_change(from - ip_at, to - ip_at));
    }
    udp[2] = FRAME_HALF(to - udp_at);
}
