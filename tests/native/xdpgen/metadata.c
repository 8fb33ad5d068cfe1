// SPDX-License-Identifier: Apache-2.0
// Metadata of sent frames: what the kernel reads and writes in them (send), and what is made of it (the
// others).
#include <sys/socket.h>

// The kernel sums in software, by copy too, only where the memory is registered with this.
#define UMEM_TX_SW_CSUM (1 << 1)

static int register_with_sums(int fd, int level, int name, const void *value, socklen_t size);
#define setsockopt register_with_sums
#include "rings.c"
#undef setsockopt

#include "afxdp_queue.c"

#include "frame.h"
#include "offers.h"

#include <arpa/inet.h>
#include <linux/genetlink.h>
#include <linux/if_packet.h>
#include <linux/udp.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <stdio.h>
#include <stdlib.h>

static int register_with_sums(int fd, int level, int name, const void *value, socklen_t size) {
    struct umem_registration memory;

    if (name != XDP_UMEM_REG)
        return setsockopt(fd, level, name, value, size);
    memcpy(&memory, value, sizeof(memory));
    memory.flags |= UMEM_TX_SW_CSUM;
    return setsockopt(fd, level, name, &memory, sizeof(memory));
}

static struct session session;
static struct queue queue;

#define UMEM_BYTES_OF_TEST ((size_t)XSK_CHUNKS * XSK_FRAME_BYTES)

static void get_ready(const char *interface) {
    char *words[] = {"xdpgen", "--interface", (char *)interface, "--stamp", "2", NULL};

    options_parse(&session.options, 5, words);
    session.streams = 1;
    session_set_flows(&session);
    queue.flow.count = session.flows.count;
    queue.xsk.chunks = 1;
    queue.xsk.chunk_bytes = XSK_FRAME_BYTES;
    queue.xsk.frames = XSK_CHUNKS;
    afxdp.session = &session;
    queue.stamped = (struct draw){.state = 1, .left = 1};
    afxdp_make_ready(&queue);
}

// ---- send SENDER RECEIVER ----

static int hear(const char *interface) {
    const int fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
    const struct sockaddr_ll address = {
        .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = if_nametoindex(interface)};
    const struct timeval patience = {.tv_sec = 2};

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    return bind(fd, (const struct sockaddr *)&address, sizeof(address)) ? -1 : fd;
}

static void print_heard(int fd) {
    uint8_t frame[2048];
    ssize_t bytes;

    do
        bytes = recv(fd, frame, sizeof(frame), 0);
    while (bytes >= 14 && (frame[12] != 0x08 || frame[13] != 0x00)); // others than IPv4 are the kernel's own
    printf("frame ");
    for (ssize_t i = 0; i < bytes; i++)
        printf("%02x", frame[i]);
    printf("\n");
}

static void print_done(void *whose, const struct tx_metadata *metadata, const uint8_t *frame) {
    (void)whose;
    (void)frame;
    printf("done %llu\n", (unsigned long long)metadata->completion.tx_timestamp);
}

// The pseudo header is summed by whoever asks; argv tells whether anything is asked at all.
static int send_one(const char *sender, const char *receiver, bool asks) {
    const struct xsk_request request = {.interface = sender, .metadata = true};
    const int fd = hear(receiver);

    get_ready(sender);
    if (fd < 0 || xsk_open(&queue.xsk, &request))
        return 1;
    queue.xsk.done = print_done;
    afxdp_write_heads(&queue.xsk);
    if (!xsk_begin(&queue.xsk, 1))
        return 1;
    fill_test_frame(&queue, 0);
    if (asks) {
        struct tx_metadata *metadata = xsk_ask(&queue.xsk);
        uint8_t *frame = (uint8_t *)metadata + TX_METADATA_ROOM;
        const struct iphdr *ip = (void *)(frame + ETH_HLEN);
        struct udphdr *udp = (void *)(frame + ETH_HLEN + sizeof(*ip));
        const uint16_t halves[] = {ip->saddr,       ip->saddr >> 16,    ip->daddr,
                                   ip->daddr >> 16, htons(IPPROTO_UDP), udp->len};
        uint64_t sum = 0;
        for (unsigned i = 0; i < 6; i++)
            sum += halves[i];
        udp->check = frame_sum_fold(sum);
        metadata->flags = TX_METADATA_CHECKSUM | TX_METADATA_TIMESTAMP;
        metadata->request.csum_start = ETH_HLEN + sizeof(*ip);
        metadata->request.csum_offset = offsetof(struct udphdr, check);
    }
    xsk_end(&queue.xsk);
    print_heard(fd);
    drain(&queue);
    printf("left %u\n", queue.left);
    xsk_close(&queue.xsk);
    return 0;
}

// ---- completions: rings in memory of this process ----

static void complete(uint64_t *ring, const struct xdp_desc *sent, uint32_t frames) {
    for (uint32_t i = 0; i < frames; i++)
        ring[i] = sent[i].addr;
}

static int completions(void) {
    static struct xdp_desc sent[XSK_CHUNKS];
    static uint64_t done[XSK_CHUNKS];
    static struct arrival arrivals[ARRIVAL_SLOTS];
    static uint32_t tx_produced, tx_consumed, produced, consumed;
    const uint64_t first = (1ull << 32) - 3; // the numbers pass what a frame can carry

    get_ready("lo");
    queue.xsk.area = aligned_alloc(4096, UMEM_BYTES_OF_TEST);
    for (unsigned i = 0; i < XSK_CHUNKS; i++)
        queue.xsk.free[i] = i * XSK_FRAME_BYTES + TX_METADATA_ROOM;
    memset(queue.xsk.area, 0, UMEM_BYTES_OF_TEST);
    queue.xsk.free_count = XSK_CHUNKS;
    queue.xsk.tx = (struct xsk_ring_prod){.mask = XSK_CHUNKS - 1,
                                          .size = XSK_CHUNKS,
                                          .ring = sent,
                                          .cached_cons = XSK_CHUNKS,
                                          .producer = &tx_produced,
                                          .consumer = &tx_consumed};
    queue.xsk.completion = (struct xsk_ring_cons){.mask = XSK_CHUNKS - 1,
                                                  .size = XSK_CHUNKS,
                                                  .ring = done,
                                                  .producer = &produced,
                                                  .consumer = &consumed};
    session.options.usual = false; // as options_parse() has it where the device stamps
    queue.xsk.done = afxdp_sent;
    queue.xsk.whose = &queue;
    queue.stamps = malloc(sizeof(*queue.stamps));
    queue.stamps->arrivals = arrivals;
    stamps_reset(queue.stamps);
    queue.sequence = first;
    xsk_begin(&queue.xsk, 8);
    for (unsigned i = 0; i < 8; i++, queue.sequence++) {
        queue.stamped.left = 1 + i % 2; // one in two asks for a stamp
        fill_test_frame(&queue, 0);
    }
    for (unsigned i = 0; i < 8; i++)
        printf("asks %d\n", sent[i].options == TX_METADATA_OPTION);
    for (unsigned i = 0; i < 8; i += 2) {
        struct tx_metadata *metadata = (void *)(queue.xsk.area + sent[i].addr - TX_METADATA_ROOM);
        printf("flags %llu stamp %llu\n", (unsigned long long)metadata->flags,
               (unsigned long long)metadata->completion.tx_timestamp);
        metadata->completion.tx_timestamp = i == 6 ? 0 : 1000 + i; // the device has none of the last
        arrivals[(first + i) & (ARRIVAL_SLOTS - 1)] =
            (struct arrival){.number = first + i, .ns = i == 2 ? 0 : 1500 + i}; // one is lost
    }
    complete(done, sent, 8);
    produced = 8;
    xsk_begin(&queue.xsk, 0);
    stamps_finish(queue.stamps);
    const struct sent_totals *totals = &queue.stamps->totals;
    printf("totals %llu %llu %llu %llu free %u min %llu max %llu\n", (unsigned long long)totals->stamped,
           (unsigned long long)totals->unstamped, (unsigned long long)totals->matched,
           (unsigned long long)totals->bad, queue.xsk.free_count, (unsigned long long)totals->latency.min,
           (unsigned long long)totals->latency.max);
    return 0;
}

// ---- stamps FRAMES BEHIND: each comes back after 700 ns, and is told of when it was sent so many frames
// later ----

static int stamps(uint64_t frames, uint64_t behind) {
    static struct arrival arrivals[ARRIVAL_SLOTS];
    static struct sent_stamps stamps;

    stamps.arrivals = arrivals;
    stamps_reset(&stamps);
    for (uint64_t number = 1; number <= frames + behind; number++) {
        if (number <= frames)
            arrivals[number & (ARRIVAL_SLOTS - 1)] = (struct arrival){number, 1000 * number + 700};
        if (number > behind)
            stamps_record(&stamps, number - behind, 1000 * (number - behind));
    }
    stamps_record(&stamps, frames + 1, 1000 * (frames + 2)); // its clock was set back meanwhile
    arrivals[(frames + 1) & (ARRIVAL_SLOTS - 1)] = (struct arrival){frames + 1, 1};
    stamps_finish(&stamps);
    struct sent_totals sum = {.latency = HISTOGRAM_EMPTY};
    stamps_add(&sum, &stamps.totals);
    printf("totals %llu %llu %llu %llu min %llu max %llu\n", (unsigned long long)sum.stamped,
           (unsigned long long)sum.unstamped, (unsigned long long)sum.matched, (unsigned long long)sum.bad,
           (unsigned long long)sum.latency.min, (unsigned long long)sum.latency.max);
    return 0;
}

// ---- offers: a kernel's reply on standard input ----

static int offers(void) {
    static char reply[4096] __attribute__((aligned(4)));
    const size_t bytes = fread(reply, 1, sizeof(reply), stdin);
    uint64_t found = 0;
    const int error = offers_parse(reply, bytes, &found);

    printf("%d %s\n", error, offers_text(found));
    return 0;
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";

    if (!strcmp(what, "send") && count == 5)
        return send_one(words[2], words[3], !strcmp(words[4], "asks"));
    if (!strcmp(what, "completions"))
        return completions();
    if (!strcmp(what, "stamps") && count == 4)
        return stamps(strtoull(words[2], NULL, 10), strtoull(words[3], NULL, 10));
    if (!strcmp(what, "offers"))
        return offers();
    return 2;
}
