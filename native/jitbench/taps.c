// SPDX-License-Identifier: Apache-2.0
#include "taps.h"
#include "sockets.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST_TAPS = 1024, CLOSERS = 16 };

// It sees IPv4 as it is received: once, while ETH_P_ALL on this device would see it as it is sent, too. The
// latest socket comes first: it has seen a packet when recv() returns.
static int bind_tap(struct subject *subject, int tap) {
    struct sockaddr_ll where = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP)};
    if (bind(tap, (struct sockaddr *)&where, sizeof(where)))
        return blame(subject, "bind");
    return 0;
}

int tap_open(struct subject *subject) {
    subject->tap = socket(AF_PACKET, SOCK_RAW, 0);
    if (subject->tap < 0)
        return blame(subject, "packet socket");
    return attach_filter(subject, subject->tap) || bind_tap(subject, subject->tap) ? -1 : 0;
}

void tap_close(struct subject *subject) {
    if (subject->tap >= 0)
        close(subject->tap);
    subject->tap = -1;
}

int tap_read(struct subject *subject) {
    static _Alignas(PAGE_BYTES) char buffer[PAGE_BYTES];
    ssize_t seen = recv(subject->tap, buffer, sizeof(buffer), MSG_DONTWAIT);
    if (seen < 0 && errno != EAGAIN)
        return blame(subject, "recv from tap");
    subject->verdict = seen < 0 ? 0 : seen;
    for (; seen >= 0; subject->passed++)
        seen = recv(subject->tap, buffer, sizeof(buffer), MSG_DONTWAIT);
    return 0;
}

static int allow_descriptors(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        return -1;
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &limit);
}

int taps_open(struct subject *subject) {
    const int least = 0; // the kernel rounds it up
    if (subject->number > MOST_TAPS || !(subject->taps = calloc(subject->number, sizeof(*subject->taps))) ||
        allow_descriptors())
        return blame(subject, "packet sockets");
    memset(subject->taps, -1, subject->number * sizeof(*subject->taps));
    for (long i = 0; i < subject->number; i++) {
        int tap = subject->taps[i] = socket(AF_PACKET, SOCK_RAW, 0);
        if (tap < 0 || setsockopt(tap, SOL_SOCKET, SO_RCVBUF, &least, sizeof(least)))
            return blame(subject, "packet socket");
        if (attach_filter(subject, tap) || bind_tap(subject, tap))
            return -1;
    }
    return 0;
}

struct share {
    const struct subject *subject;
    long first;
};

static void *close_share(void *argument) {
    const struct share *share = argument;
    for (long i = share->first; i < share->subject->number; i += CLOSERS)
        if (share->subject->taps[i] >= 0)
            close(share->subject->taps[i]);
    return NULL;
}

// Closing one waits for an RCU grace period, which those that close at the same time share.
void taps_close(struct subject *subject) {
    pthread_t threads[CLOSERS];
    struct share shares[CLOSERS];
    bool started[CLOSERS];

    if (!subject->taps)
        return;
    for (long i = 0; i < CLOSERS; i++) {
        shares[i] = (struct share){subject, i};
        started[i] = !pthread_create(&threads[i], NULL, close_share, &shares[i]);
        if (!started[i])
            close_share(&shares[i]);
    }
    for (long i = 0; i < CLOSERS; i++)
        if (started[i])
            pthread_join(threads[i], NULL);
    free(subject->taps);
    subject->taps = NULL;
}

// Reading the statistics sets them to 0.
static int statistics(struct subject *subject, int tap, long *passed) {
    struct tpacket_stats found;
    socklen_t bytes = sizeof(found);
    if (getsockopt(tap, SOL_PACKET, PACKET_STATISTICS, &found, &bytes))
        return blame(subject, "PACKET_STATISTICS");
    *passed = found.tp_packets;
    return 0;
}

int taps_begin(struct subject *subject) {
    long before;
    for (long i = 0; i < subject->number; i++)
        if (statistics(subject, subject->taps[i], &before))
            return -1;
    return 0;
}

int taps_judge(struct subject *subject, long times) {
    long passed = 0, all = 0;
    for (long i = 0; i < subject->number; i++) {
        if (statistics(subject, subject->taps[i], &passed))
            return -1;
        all += passed;
    }
    subject->passed = all;
    if (all && all != times * subject->number) {
        errno = 0;
        return blame(subject, "some packet sockets let through other packets");
    }
    subject->verdict = all > 0;
    return 0;
}
