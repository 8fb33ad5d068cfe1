// SPDX-License-Identifier: Apache-2.0
#include "hold.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <bpf/bpf.h>

static struct { int tap, link; } hold = {.tap = -1, .link = -1};

static const char *because(const char *what) {
    static char reason[128];

    snprintf(reason, sizeof(reason), "%s: %s", what, strerror(errno));
    hold_close();
    return reason;
}

// In the network namespace that this thread is in.
static const char *attach(int program) {
    LIBBPF_OPTS(bpf_link_create_opts, native, .flags = XDP_FLAGS_DRV_MODE);
    struct ifreq request = {.ifr_name = "hold", .ifr_flags = IFF_TAP | IFF_NO_PI};

    hold.tap = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
    if (hold.tap < 0)
        return because("/dev/net/tun cannot be opened");
    if (ioctl(hold.tap, TUNSETIFF, &request))
        return because("no tap can be made");
    hold.link = bpf_link_create(program, if_nametoindex("hold"), BPF_XDP, &native);
    return hold.link < 0 ? because("the program cannot be attached to a tap") : NULL;
}

const char *hold_open(int program) {
    int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    const char *reason;

    if (home < 0)
        return because("/proc is not mounted");
    if (unshare(CLONE_NEWNET)) {
        reason = because("no network namespace can be made");
    } else {
        reason = attach(program);
        if (setns(home, CLONE_NEWNET))
            abort(); // whatever came next would happen in the wrong place
    }
    close(home);
    return reason;
}

void hold_close(void) {
    if (hold.link >= 0)
        close(hold.link);
    if (hold.tap >= 0)
        close(hold.tap);
    hold.link = hold.tap = -1;
}
