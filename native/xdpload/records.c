// SPDX-License-Identifier: Apache-2.0
#include "records.h"
#include "clock.h"
#include "fail.h"
#include "json.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_MAPS 16
#define MAX_MAPS_USED 64
#define PERF_PAGES 64 // of each CPU, as libbpf's examples have
#define RECORD_HEADER 8
#define LOOK_NS (1 * NS_PER_MS)
#define CAUGHT_UP_NS (200 * NS_PER_MS)
#define POLL_MS 1 // a record that does not wake its reader (BPF_RB_NO_WAKEUP) waits so long

struct buffer {
    struct perf_buffer *perf; // NULL: a ring buffer
    uint64_t *consumed;       // positions in the ring; its data lie twice in a row
    const uint64_t *produced;
    const unsigned char *data;
    uint64_t size;
    uint64_t position; // ours
    uint64_t largest;
};

// Written by the reader only.
static struct {
    struct buffer buffers[MAX_MAPS];
    unsigned count;
    int epoll;
    pthread_t thread;
    uint64_t ring_records, ring_full; // times that the ring had no room for its largest record
    uint64_t perf_records, perf_lost;
    bool others; // another process reads a ring too
    cpu_set_t cpus;
} reader;

static void count_up(uint64_t *count, uint64_t by) { __atomic_fetch_add(count, by, __ATOMIC_RELAXED); }
static uint64_t value(const uint64_t *count) { return __atomic_load_n(count, __ATOMIC_ACQUIRE); }

// ---- ring buffers: the layout is in include/uapi/linux/bpf.h and kernel/bpf/ringbuf.c ----

static uint64_t take(struct buffer *ring, uint32_t length) {
    uint64_t bytes = length & ~(BPF_RINGBUF_BUSY_BIT | BPF_RINGBUF_DISCARD_BIT);
    uint64_t step = (bytes + RECORD_HEADER + 7) / 8 * 8;
    ring->largest = step > ring->largest ? step : ring->largest;
    if (value(ring->produced) - ring->position + ring->largest > ring->size)
        count_up(&reader.ring_full, 1);
    if (!(length & BPF_RINGBUF_DISCARD_BIT))
        count_up(&reader.ring_records, 1);
    return step;
}

// Up to what is there at first, so that other buffers have their turn.
static void read_ring(struct buffer *ring) {
    uint64_t until = value(ring->produced);
    if (value(ring->consumed) != ring->position) {
        reader.others = true;
        return;
    }
    while (ring->position < until) {
        const unsigned char *record = ring->data + (ring->position & (ring->size - 1));
        uint32_t length = __atomic_load_n((const uint32_t *)record, __ATOMIC_ACQUIRE);
        if (length & BPF_RINGBUF_BUSY_BIT)
            return;
        ring->position += take(ring, length);
        __atomic_store_n(ring->consumed, ring->position, __ATOMIC_RELEASE);
    }
}

static int open_ring(struct buffer *ring, int fd, size_t size) {
    size_t page = getpagesize();
    ring->size = size;
    ring->consumed = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ring->produced = mmap(NULL, page + 2 * size, PROT_READ, MAP_SHARED, fd, page);
    if (ring->consumed == MAP_FAILED || ring->produced == MAP_FAILED)
        return -errno;
    ring->data = (const unsigned char *)ring->produced + page;
    ring->position = value(ring->consumed);
    return fd;
}

// ---- perf event arrays ----

static void count_sample(void *context, int cpu, void *data, __u32 size) {
    (void)context, (void)cpu, (void)data, (void)size;
    count_up(&reader.perf_records, 1);
}

static void count_lost(void *context, int cpu, __u64 lost) {
    (void)context, (void)cpu;
    count_up(&reader.perf_lost, lost);
}

static int open_perf(struct buffer *buffer, int fd) {
    buffer->perf = perf_buffer__new(fd, PERF_PAGES, count_sample, count_lost, NULL, NULL);
    return buffer->perf ? perf_buffer__epoll_fd(buffer->perf) : -errno;
}

// ---- the reader ----

static void *read_all(void *nothing) {
    struct epoll_event ready;
    while (!reader.others) {
        epoll_wait(reader.epoll, &ready, 1, POLL_MS);
        CPU_SET(sched_getcpu(), &reader.cpus);
        for (struct buffer *buffer = reader.buffers; buffer < reader.buffers + reader.count; buffer++) {
            if (buffer->perf)
                perf_buffer__consume(buffer->perf);
            else
                read_ring(buffer);
        }
    }
    return nothing;
}

static bool uses(const struct bpf_program *program, unsigned map_id) {
    unsigned ids[MAX_MAPS_USED], length = sizeof(struct bpf_prog_info);
    struct bpf_prog_info info = {.nr_map_ids = MAX_MAPS_USED, .map_ids = (unsigned long)ids};
    int fd = bpf_program__fd(program);
    if (fd < 0 || bpf_obj_get_info_by_fd(fd, &info, &length))
        return false;
    for (unsigned i = 0; i < info.nr_map_ids && i < MAX_MAPS_USED; i++)
        if (ids[i] == map_id)
            return true;
    return false;
}

// An object may have maps of programs that are not loaded.
static bool is_used(const struct bpf_object *object, int fd) {
    struct bpf_map_info info = {};
    unsigned length = sizeof(info);
    struct bpf_program *program;
    if (fd < 0 || bpf_obj_get_info_by_fd(fd, &info, &length))
        return false;
    bpf_object__for_each_program(program, object) if (uses(program, info.id)) return true;
    return false;
}

static void add_map(const struct bpf_object *object, const struct bpf_map *map) {
    enum bpf_map_type type = bpf_map__type(map);
    int fd = bpf_map__fd(map);
    if ((type != BPF_MAP_TYPE_RINGBUF && type != BPF_MAP_TYPE_PERF_EVENT_ARRAY) || reader.count == MAX_MAPS ||
        !is_used(object, fd))
        return;
    struct buffer *buffer = &reader.buffers[reader.count];
    int source = type == BPF_MAP_TYPE_RINGBUF ? open_ring(buffer, fd, bpf_map__max_entries(map))
                                              : open_perf(buffer, fd);
    struct epoll_event event = {.events = EPOLLIN};
    if (source < 0 || epoll_ctl(reader.epoll, EPOLL_CTL_ADD, source, &event))
        fail("records", source < 0 ? -source : errno, NULL, "map %s cannot be read", bpf_map__name(map));
    reader.count++;
}

void records_read(const struct bpf_object *object) {
    struct bpf_map *map;
    reader.epoll = epoll_create1(EPOLL_CLOEXEC);
    bpf_object__for_each_map(map, object) add_map(object, map);
    if (!reader.count)
        return;
    int error = pthread_create(&reader.thread, NULL, read_all, NULL);
    if (error)
        fail("records", error, NULL, "no thread to read the program's records");
}

unsigned records_maps(void) { return reader.count; }

// Waits until no ring has more than `size / parts` bytes that are not read. False if it took too long.
static bool await_rings(uint64_t parts) {
    uint64_t until = now_ns() + CAUGHT_UP_NS;
    for (unsigned i = 0; i < reader.count; i++) {
        const struct buffer *ring = &reader.buffers[i];
        while (!ring->perf && !reader.others &&
               value(ring->produced) - value(ring->consumed) > ring->size / parts) {
            if (now_ns() > until)
                return false;
            sleep_until_ns(now_ns() + LOOK_NS / 10);
        }
    }
    return true;
}

int records_make_room(void) { return await_rings(4) ? 0 : -ETIME; }

void records_unread(void) {
    complain("records", ETIME,
             "the program's records were not read within %llu ms: their reader got no CPU time",
             CAUGHT_UP_NS / NS_PER_MS);
}

static bool await_reader(void) {
    uint64_t before, until = now_ns() + CAUGHT_UP_NS;
    do {
        before = value(&reader.perf_records);
        sleep_until_ns(now_ns() + LOOK_NS);
    } while (value(&reader.perf_records) != before && now_ns() < until);
    return await_rings(UINT64_MAX);
}

static void print_cpus(void) {
    json_open_array("cpus");
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &reader.cpus))
            json_integer(NULL, cpu);
    json_close();
    CPU_ZERO(&reader.cpus);
}

void records(const struct program *program, char *arguments) {
    clockid_t clock;
    (void)program;
    (void)arguments;
    if (!reader.count) {
        complain("records", ENOENT, "the program has no ring buffer and no perf event array");
        return;
    }
    if (!await_reader()) {
        records_unread();
        return;
    }
    bool known = !pthread_getcpuclockid(reader.thread, &clock);
    json_begin("records");
    json_integer("ring_records", value(&reader.ring_records));
    json_integer("ring_full", value(&reader.ring_full));
    json_integer("perf_records", value(&reader.perf_records));
    json_integer("perf_lost", value(&reader.perf_lost));
    json_bool("others", reader.others);
    json_integer("reader_ns", known ? clock_ns(clock) : 0);
    print_cpus();
    json_end();
}
