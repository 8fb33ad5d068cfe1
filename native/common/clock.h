// SPDX-License-Identifier: Apache-2.0
// The clocks of every tool. CLOCK_MONOTONIC is what bpf_ktime_get_ns() reads.
#pragma once

#include <stdint.h>
#include <time.h>

#define NS_PER_SECOND 1000000000ull
#define NS_PER_MS 1000000ull

// 0 for the clock of a thread that has ended.
static inline uint64_t clock_ns(clockid_t clock) {
    struct timespec time = {0};
    clock_gettime(clock, &time);
    return time.tv_sec * NS_PER_SECOND + time.tv_nsec;
}

static inline uint64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

// Sleeps until the given time of CLOCK_MONOTONIC; returns early on a signal.
static inline void sleep_until_ns(uint64_t ns) {
    const struct timespec until = {.tv_sec = ns / NS_PER_SECOND, .tv_nsec = ns % NS_PER_SECOND};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}
