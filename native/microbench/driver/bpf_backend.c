// SPDX-License-Identifier: Apache-2.0
// The benchmark as a BPF program, called by BPF_PROG_TEST_RUN. Whether it is interpreted or compiled is the
// kernel's setting when it is loaded (net.core.bpf_jit_enable), and is read back from the program.
#include "backend.h"
#include "bpf_image.h"
#include "fail.h"
#include "options.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TABLE_OFFSET 64 // of the table in a state: the cursor is before it

static struct bpf_object *object;
static struct bench_record *shared; // the program's own, mapped
static size_t shared_bytes;
static int program_fd;
static unsigned char frame[FRAME_BYTES], frame_after[FRAME_BYTES];

static void fill(int map_fd, const void *key, const void *value) {
    if (bpf_map_update_elem(map_fd, key, value, BPF_ANY))
        fail("bpf", errno, NULL, "%s: filling a map: %s", options.object, strerror(errno));
}

static void fill_working_set(const struct bpf_map *map) {
    size_t bytes = bpf_map__value_size(map);
    void *contents = calloc(1, bytes);
    uint32_t key = 0;

    if (!contents || state_bytes > bytes)
        fail("bpf", contents ? E2BIG : errno, NULL, "%s: no working set of %zu bytes: %s", options.object,
             state_bytes, strerror(contents ? E2BIG : errno));
    memcpy(contents, state, state_bytes);
    fill(bpf_map__fd(map), &key, contents);
    free(contents);
}

// A value of 8 bytes an entry, the same for every CPU.
static void fill_table(const struct bpf_map *map) {
    const uint64_t *values = (const void *)((const char *)state + TABLE_OFFSET);
    uint32_t entries = bpf_map__max_entries(map), cpus = libbpf_num_possible_cpus();
    uint64_t *each = calloc(cpus, sizeof(*each));

    if (!each || state_bytes != TABLE_OFFSET + entries * sizeof(*values))
        fail("bpf", each ? EINVAL : errno, NULL, "%s: filling a table of %u entries: %s", options.object,
             entries, strerror(each ? EINVAL : errno));
    for (uint32_t key = 0; key < entries; key++) {
        for (uint32_t cpu = 0; cpu < cpus; cpu++)
            each[cpu] = values[key];
        fill(bpf_map__fd(map), &key, each);
    }
    free(each);
}

static void fill_maps(void) {
    const struct bpf_map *set = bpf_object__find_map_by_name(object, "memory");
    const struct bpf_map *table = bpf_object__find_map_by_name(object, "table");
    const struct bpf_map *links = bpf_object__find_map_by_name(object, "links");
    uint32_t first = 0;

    if (links) {
        int link_fd = bpf_program__fd(bpf_object__find_program_by_name(object, "chain_link"));

        fill(bpf_map__fd(links), &first, &link_fd);
    }
    if (state_bytes && table)
        fill_table(table);
    else if (state_bytes && set)
        fill_working_set(set);
}

static struct bench_record *map_record(const struct bpf_map *map) {
    void *mapped;

    shared_bytes = sysconf(_SC_PAGESIZE);
    mapped = mmap(NULL, shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(map), 0);
    if (mapped == MAP_FAILED)
        fail("bpf", errno, NULL, "%s: mapping the record: %s", options.object, strerror(errno));
    return mapped;
}

static struct image bpf_load(void) {
    const struct bpf_map *records;
    const struct bpf_program *program;

    object = bpf_image_open(options.object);
    program = bpf_object__find_program_by_name(object, "microbench");
    records = bpf_object__find_map_by_name(object, ".data.record");
    if (!program || !records)
        fail("bpf", 0, NULL, "%s: it has no program `microbench` or no record", options.object);
    if (bpf_object__load(object))
        bpf_image_refused(options.object, errno);
    program_fd = bpf_program__fd(program);
    shared = map_record(records);
    fill_maps();
    for (int i = 0; i < FRAME_BYTES; i++)
        frame[i] = i;
    return bpf_image_of(program_fd);
}

static void bpf_call(struct bench_record *record) {
    LIBBPF_OPTS(bpf_test_run_opts, run, .data_in = frame, .data_size_in = sizeof(frame),
                .data_out = frame_after, .data_size_out = sizeof(frame_after), .repeat = 1);

    *shared = *record;
    if (bpf_prog_test_run_opts(program_fd, &run))
        fail("bpf", errno, NULL, "running %s: %s", options.object, strerror(errno));
    if (run.retval != XDP_PASS)
        fail("bpf", 0, NULL, "%s: the program gave up (it returned %u)", options.object, run.retval);
    *record = *shared;
}

static void bpf_unload(void) {
    munmap(shared, shared_bytes);
    bpf_object__close(object);
}

static void bpf_print_code(void) {
    struct bpf_program *program;

    bpf_object__for_each_program(program, object) bpf_image_print_code(bpf_program__fd(program));
}

const struct backend bpf_backend = {"bpf", bpf_load, bpf_call, bpf_unload, bpf_print_code};
