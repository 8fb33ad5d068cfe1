// SPDX-License-Identifier: Apache-2.0
// phc.c over clocks that this process makes. Prints how far the offset is off, in ns, if the CPU is taken
// away for 10 ms just before each of the first readings in turn.
#include <linux/ptp_clock.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <time.h>

static int made_clock(clockid_t clock, struct timespec *time);
static int made_device(int fd, unsigned long request, void *argument);
#define clock_gettime made_clock
#define ioctl made_device
#include "phc.c"

#define REAL_AHEAD 1700000000000000000
#define DEVICE_AHEAD 1700000037000000000
#define LOOK_NS 50
#define TAKEN_NS 10000000

static int64_t monotonic;
static int looks, taken_at;

static int64_t look(void) {
    if (looks++ == taken_at)
        monotonic += TAKEN_NS;
    return monotonic += LOOK_NS;
}

static int made_clock(clockid_t clock, struct timespec *time) {
    const int64_t now = look() + (clock == CLOCK_REALTIME ? REAL_AHEAD : 0);

    *time = (struct timespec){.tv_sec = now / 1000000000, .tv_nsec = now % 1000000000};
    return 0;
}

static struct ptp_clock_time made_time(int64_t ahead) {
    const int64_t now = look() + ahead;

    return (struct ptp_clock_time){.sec = now / 1000000000, .nsec = now % 1000000000};
}

static int made_device(int fd, unsigned long request, void *argument) {
    struct ptp_sys_offset_extended *read = argument;

    (void)fd;
    for (unsigned i = 0; request == PTP_SYS_OFFSET_EXTENDED && i < read->n_samples; i++) {
        read->ts[i][0] = made_time(REAL_AHEAD);
        read->ts[i][1] = made_time(DEVICE_AHEAD);
        read->ts[i][2] = made_time(REAL_AHEAD);
    }
    return 0;
}

int main(void) {
    for (taken_at = 0; taken_at < 40; taken_at++) {
        int64_t offset = 0;

        monotonic = 1000000000;
        looks = 0;
        if (!phc_to_monotonic(3, &offset))
            return 1;
        printf("%ld\n", (long)(offset + DEVICE_AHEAD));
    }
    return 0;
}
