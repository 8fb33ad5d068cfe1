// SPDX-License-Identifier: Apache-2.0
// An XDP socket behind a program's map of sockets: `sink INTERFACE MAP COUNT_FILE`. It takes the place of the
// sink before it, returns once its socket is in the newest map of that name, and goes on in the background:
// whenever no frame comes it writes how many it has received, and it ends 20 seconds after the last of them.
#include <bpf/bpf.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xdp/xsk.h>

#define FRAMES 4096
#define FRAME_BYTES 2048

static void die(const char *what, int error) {
    fprintf(stderr, "sink: %s: %s\n", what, strerror(error));
    exit(1);
}

static int map_named(const char *name) {
    struct bpf_map_info info;
    __u32 id = 0, size = sizeof(info);
    int newest = -1, fd;
    while (!bpf_map_get_next_id(id, &id)) {
        memset(&info, 0, sizeof(info));
        if ((fd = bpf_map_get_fd_by_id(id)) < 0)
            continue;
        if (bpf_obj_get_info_by_fd(fd, &info, &size) || strcmp(info.name, name))
            close(fd);
        else
            newest = fd;
    }
    return newest;
}

static void replace_the_one_before(const char *program) {
    char path[512], text[32] = "";
    snprintf(path, sizeof(path), "%s.pid", program);
    FILE *file = fopen(path, "r");
    if (file && fgets(text, sizeof(text), file))
        kill(atoi(text), SIGTERM);
    if (file)
        fclose(file);
}

static void write_number(const char *path, long long number) {
    FILE *file = fopen(path, "w");
    if (!file)
        die(path, errno);
    fprintf(file, "%lld\n", number);
    fclose(file);
}

int main(int argc, char **argv) {
    struct xsk_ring_prod fill;
    struct xsk_ring_cons completion, rx;
    struct xsk_umem *umem;
    struct xsk_socket *xsk;
    const struct xsk_umem_config sizes = {
        .fill_size = FRAMES, .comp_size = FRAMES, .frame_size = FRAME_BYTES};
    const struct xsk_socket_config config = {
        .rx_size = FRAMES, .libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD, .bind_flags = XDP_COPY};
    if (argc != 4)
        die("usage: sink INTERFACE MAP COUNT_FILE", EINVAL);
    replace_the_one_before(argv[0]);
    void *memory = mmap(NULL, (size_t)FRAMES * FRAME_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    int error = 0;
    // A queue stays busy until the one before has let it go.
    for (int patience = 2000; patience; patience--) {
        error = -xsk_umem__create(&umem, memory, (__u64)FRAMES * FRAME_BYTES, &fill, &completion, &sizes);
        if (error)
            die("umem", error);
        error = -xsk_socket__create(&xsk, argv[1], 0, umem, &rx, NULL, &config);
        if (error != EBUSY)
            break;
        xsk_umem__delete(umem);
        usleep(1000);
    }
    if (error)
        die("socket", error);
    unsigned place, key = 0;
    int fd = xsk_socket__fd(xsk), map = map_named(argv[2]);
    for (unsigned i = xsk_ring_prod__reserve(&fill, FRAMES, &place); i--;)
        *xsk_ring_prod__fill_addr(&fill, place + i) = (__u64)i * FRAME_BYTES;
    xsk_ring_prod__submit(&fill, FRAMES);
    if (map < 0 || bpf_map_update_elem(map, &key, &fd, BPF_ANY))
        die("the map of sockets", errno);
    close(map);
    // On a shared CPU the sender is SCHED_FIFO 5: the receiver must come before it, and sleeps in poll.
    sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 6});
    if (daemon(1, 0))
        die("daemon", errno);
    char pid_file[512];
    snprintf(pid_file, sizeof(pid_file), "%s.pid", argv[0]);
    write_number(pid_file, getpid());
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    long long received = 0;
    for (int idle = 0; idle < 100; idle++) {
        if (poll(&readable, 1, 200) > 0)
            idle = -1;
        unsigned from, to, count = xsk_ring_cons__peek(&rx, FRAMES, &from);
        if (count && xsk_ring_prod__reserve(&fill, count, &to) == count) {
            for (unsigned i = 0; i < count; i++)
                *xsk_ring_prod__fill_addr(&fill, to + i) = xsk_ring_cons__rx_desc(&rx, from + i)->addr;
            xsk_ring_prod__submit(&fill, count);
        }
        xsk_ring_cons__release(&rx, count);
        received += count;
        if (!count)
            write_number(argv[3], received);
    }
    return 0;
}
