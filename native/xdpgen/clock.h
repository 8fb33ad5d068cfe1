/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#define NS_PER_SECOND 1000000000ull
#define NS_PER_MS 1000000ull

/* CLOCK_MONOTONIC, which is what bpf_ktime_get_ns() reads. */
uint64_t clock_now_ns(void);

/* Sleeps until the given time of that clock; returns early on a signal. */
void clock_sleep_until(uint64_t ns);
