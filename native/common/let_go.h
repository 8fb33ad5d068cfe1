// SPDX-License-Identifier: Apache-2.0
// The kernel lets go of what a killed process held some time after its end, and whoever comes next waits for
// it. While a generator floods the CPUs with frames a grace period of RCU takes a second. A program goes
// after one or two, a queue after one per AF_XDP socket of its process.
#pragma once

#include "clock.h"

#include <poll.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define LET_GO_PROGRAM_NS (5 * NS_PER_SECOND)
#define LET_GO_QUEUE_NS (10 * NS_PER_SECOND)
#define LET_GO_RETRY_NS (5 * NS_PER_MS)

// Waits a little and returns true; false once `limit` ns have passed since `since`.
static inline bool let_go_wait(uint64_t since, uint64_t limit) {
    if (now_ns() - since >= limit)
        return false;
    sleep_until_ns(now_ns() + LET_GO_RETRY_NS);
    return true;
}

// Whether a tool that takes commands from its standard input will get no more: who gave them is gone. A tool
// that waited on would hold its interface for seconds after its controller was killed.
static inline bool nobody_commands(void) {
    struct pollfd input = {.fd = STDIN_FILENO};
    int pending = 0;
    return poll(&input, 1, 0) == 1 && (input.revents & POLLHUP) && !ioctl(STDIN_FILENO, FIONREAD, &pending) &&
           !pending;
}
