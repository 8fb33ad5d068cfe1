// SPDX-License-Identifier: Apache-2.0
#include "phc.h"
#include "clock.h"

#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/ptp_clock.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define SAMPLES 5

int phc_index(const char *interface) {
    struct ethtool_ts_info info = {.cmd = ETHTOOL_GET_TS_INFO};
    struct ifreq request = {.ifr_data = (char *)&info};
    const int socket_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    strncpy(request.ifr_name, interface, sizeof(request.ifr_name) - 1);
    const int error = socket_fd < 0 ? -1 : ioctl(socket_fd, SIOCETHTOOL, &request);
    if (socket_fd >= 0)
        close(socket_fd);
    return error ? -1 : info.phc_index;
}

int phc_open(const char *interface) {
    char path[32];
    const int index = phc_index(interface);

    snprintf(path, sizeof(path), "/dev/ptp%d", index);
    return index < 0 ? -1 : open(path, O_RDONLY | O_CLOEXEC);
}

static int64_t ns(struct ptp_clock_time time) { return time.sec * (int64_t)NS_PER_SECOND + time.nsec; }

// The kernel reads the system's clock on both sides of the device's; the closest pair is the best.
static int64_t to_realtime(const struct ptp_sys_offset_extended *read) {
    int64_t closest = INT64_MAX, offset = 0;

    for (unsigned i = 0; i < read->n_samples; i++) {
        const int64_t before = ns(read->ts[i][0]), after = ns(read->ts[i][2]);
        if (after - before < closest) {
            closest = after - before;
            offset = before + closest / 2 - ns(read->ts[i][1]);
        }
    }
    return offset;
}

// The same by hand: a CPU that is taken away between two readings would shift every latency by half of that.
static int64_t real_to_monotonic(void) {
    int64_t closest = INT64_MAX, offset = 0;

    for (unsigned i = 0; i < SAMPLES; i++) {
        const int64_t before = now_ns(), real = clock_ns(CLOCK_REALTIME), after = now_ns();
        if (after - before < closest) {
            closest = after - before;
            offset = before + closest / 2 - real;
        }
    }
    return offset;
}

bool phc_to_monotonic(int clock, int64_t *offset) {
    struct ptp_sys_offset_extended read = {.n_samples = SAMPLES};

    if (clock < 0 || ioctl(clock, PTP_SYS_OFFSET_EXTENDED, &read))
        return false;
    *offset = to_realtime(&read) + real_to_monotonic();
    return true;
}
