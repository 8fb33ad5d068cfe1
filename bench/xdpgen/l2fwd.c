// SPDX-License-Identifier: Apache-2.0
// A forwarder written straight on libxdp's AF_XDP sockets, as a user would begin: one thread per queue,
// addresses swapped in place, frames go back by the socket that they came by. Usage: l2fwd INTERFACE QUEUES
// CPU PRIORITY; ends when its standard input does.
#include <err.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <xdp/xsk.h>

#define FRAMES 4096
#define FRAME_BYTES 2048
#define BATCH 64
#define MOST_QUEUES 64

struct port {
    struct xsk_umem *umem;
    struct xsk_socket *socket;
    uint8_t *area;
    struct xsk_ring_prod fill, tx;
    struct xsk_ring_cons completion, rx;
    unsigned sending; // frames that the kernel has not let go of
};

static struct port ports[MOST_QUEUES];

// Has the kernel send (at most 32 frames per call) and gives frames that it sent back to the receiving side.
static void send_and_give_back(struct port *port) {
    uint32_t from, to;
    unsigned frames;

    if (!port->sending)
        return;
    sendto(xsk_socket__fd(port->socket), NULL, 0, MSG_DONTWAIT, NULL, 0);
    frames = xsk_ring_cons__peek(&port->completion, BATCH, &from);
    if (!frames)
        return;
    while (xsk_ring_prod__reserve(&port->fill, frames, &to) != frames)
        ;
    for (unsigned i = 0; i < frames; i++)
        *xsk_ring_prod__fill_addr(&port->fill, to + i) =
            *xsk_ring_cons__comp_addr(&port->completion, from + i);
    xsk_ring_prod__submit(&port->fill, frames);
    xsk_ring_cons__release(&port->completion, frames);
    port->sending -= frames;
}

static void swap_addresses(uint8_t *frame) {
    uint8_t mac[ETH_ALEN];

    memcpy(mac, frame, ETH_ALEN);
    memcpy(frame, frame + ETH_ALEN, ETH_ALEN);
    memcpy(frame + ETH_ALEN, mac, ETH_ALEN);
}

static void forward(struct port *port) {
    uint32_t from, to;
    unsigned frames = xsk_ring_cons__peek(&port->rx, BATCH, &from);

    if (frames) {
        while (xsk_ring_prod__reserve(&port->tx, frames, &to) != frames)
            send_and_give_back(port);
        for (unsigned i = 0; i < frames; i++) {
            const struct xdp_desc *desc = xsk_ring_cons__rx_desc(&port->rx, from + i);
            swap_addresses(xsk_umem__get_data(port->area, desc->addr));
            *xsk_ring_prod__tx_desc(&port->tx, to + i) =
                (struct xdp_desc){.addr = desc->addr, .len = desc->len};
        }
        xsk_ring_prod__submit(&port->tx, frames);
        xsk_ring_cons__release(&port->rx, frames);
        port->sending += frames;
    }
    send_and_give_back(port);
}

static void *serve(void *opaque) {
    struct port *port = opaque;
    struct pollfd ready = {.fd = xsk_socket__fd(port->socket), .events = POLLIN};

    for (;;) {
        if (!port->sending && !xsk_cons_nb_avail(&port->rx, 1))
            poll(&ready, 1, 100);
        forward(port);
    }
    return NULL;
}

static void open_port(struct port *port, const char *interface, unsigned queue) {
    const struct xsk_umem_config memory = {
        .fill_size = FRAMES, .comp_size = FRAMES, .frame_size = FRAME_BYTES};
    const struct xsk_socket_config config = {.rx_size = FRAMES / 2,
                                             .tx_size = FRAMES / 2,
                                             .xdp_flags = XDP_FLAGS_DRV_MODE,
                                             .bind_flags = XDP_COPY};
    uint32_t to;

    port->area = mmap(NULL, FRAMES * FRAME_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (port->area == MAP_FAILED)
        err(1, "no memory");
    errno = -xsk_umem__create(&port->umem, port->area, FRAMES * FRAME_BYTES, &port->fill, &port->completion,
                              &memory);
    if (errno)
        err(1, "no UMEM");
    errno = -xsk_socket__create(&port->socket, interface, queue, port->umem, &port->rx, &port->tx, &config);
    if (errno)
        err(1, "queue %u of %s", queue, interface);
    if (xsk_ring_prod__reserve(&port->fill, FRAMES, &to) != FRAMES)
        errx(1, "the fill ring is too small");
    for (unsigned i = 0; i < FRAMES; i++)
        *xsk_ring_prod__fill_addr(&port->fill, to + i) = (uint64_t)i * FRAME_BYTES;
    xsk_ring_prod__submit(&port->fill, FRAMES);
}

int main(int argc, char **argv) {
    unsigned queues = argc == 5 ? atoi(argv[2]) : 0;
    pthread_t thread;
    cpu_set_t cpus;
    char end;

    if (!queues || queues > MOST_QUEUES)
        errx(2, "usage: l2fwd INTERFACE QUEUES CPU PRIORITY");
    CPU_ZERO(&cpus);
    CPU_SET(atoi(argv[3]), &cpus);
    if (sched_setaffinity(0, sizeof(cpus), &cpus) ||
        sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = atoi(argv[4])}))
        err(1, "CPU %s or its real-time priority cannot be had", argv[3]);
    for (unsigned queue = 0; queue < queues; queue++)
        open_port(&ports[queue], argv[1], queue);
    for (unsigned queue = 0; queue < queues; queue++)
        if (pthread_create(&thread, NULL, serve, &ports[queue]))
            errx(1, "no thread");
    while (read(STDIN_FILENO, &end, 1) > 0)
        ;
    for (unsigned queue = 0; queue < queues; queue++)
        xsk_socket__delete(ports[queue].socket);
    return 0;
}
