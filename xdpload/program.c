// SPDX-License-Identifier: Apache-2.0
#include "program.h"
#include "attach.h"
#include "fail.h"
#include "json.h"
#include "load_clock.h"
#include "setup.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// The most every kernel accepts; the pages are only touched where the verifier writes.
#define VERIFIER_LOG_BYTES 16777215

static char *verifier_log;

long long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static bool is_wanted(const struct bpf_program *program, const struct options *options) {
    if (options->program)
        return !strcmp(bpf_program__name(program), options->program);
    if (options->section)
        return !strcmp(bpf_program__section_name(program), options->section);
    return bpf_program__type(program) == BPF_PROG_TYPE_XDP;
}

// Other XDP programs of the object are loaded with it, because its tail calls may need them; other types are
// not.
static void choose_program(struct program *program, const struct options *options) {
    struct bpf_program *other;
    bpf_object__for_each_program(other, program->object) {
        if (!program->handle && is_wanted(other, options))
            program->handle = other;
        else if (bpf_program__type(other) != BPF_PROG_TYPE_XDP)
            bpf_program__set_autoload(other, false);
    }
    if (!program->handle)
        fail("open", ENOENT, NULL, "%s has no program %s%s", options->object,
             options->program ? "named " : "in section ",
             options->program   ? options->program
             : options->section ? options->section
                                : "xdp");
    bpf_program__set_autoload(program->handle, true);
    bpf_program__set_type(program->handle, BPF_PROG_TYPE_XDP);
}

void open_program(struct program *program, const struct options *options) {
    verifier_log = malloc(VERIFIER_LOG_BYTES);
    if (!verifier_log)
        fail("open", ENOMEM, NULL, "no memory for the verifier's log");
    verifier_log[0] = '\0';
    LIBBPF_OPTS(bpf_object_open_opts, open_options, .kernel_log_buf = verifier_log,
                .kernel_log_size = VERIFIER_LOG_BYTES);

    long long start = now_ns();
    program->object = bpf_object__open_file(options->object, &open_options);
    program->open_ns = now_ns() - start;
    if (!program->object)
        fail("open", errno, libbpf_words(), "%s cannot be opened as a BPF object", options->object);
    choose_program(program, options);
}

static void bind_to_device(struct program *program, int ifindex) {
    struct bpf_map *map;
    bpf_program__set_ifindex(program->handle, ifindex);
    bpf_object__for_each_map(map, program->object) bpf_map__set_ifindex(map, ifindex);
}

__attribute__((noreturn)) static void refuse_offload(const struct program *program, const char *interface,
                                                     int error, const char *log) {
    char driver[32];
    read_driver(interface, driver, sizeof(driver));
    fail("load", error, log, "the driver of %s (%s) does not take %s for offload: %s", interface, driver,
         bpf_program__name(program->handle), strerror(error));
}

__attribute__((noreturn)) static void refuse_load(const struct program *program,
                                                  const struct options *options, int error) {
    const char *name = bpf_program__name(program->handle);
    const char *log = verifier_log[0] ? verifier_log : libbpf_words();
    int first_error = load_clock_first_errno();
    if (options->mode == MODE_OFFLOAD)
        refuse_offload(program, options->interface, first_error ? first_error : error, log);
    if (!first_error)
        fail("load", error, log, "%s cannot be prepared for loading: %s", name, strerror(error));
    fail("load", first_error, log, "the kernel refuses %s: %s", name, strerror(first_error));
}

void load_program(struct program *program, const struct options *options, int ifindex) {
    set_constants(program->object, &options->rodata);
    resize_maps(program->object, &options->max_entries);
    if (options->mode == MODE_OFFLOAD)
        bind_to_device(program, ifindex);
    load_clock_watch(bpf_program__name(program->handle));
    forget_libbpf_words();
    int error = bpf_object__load(program->object);
    if (error)
        refuse_load(program, options, -error);
    program->fd = bpf_program__fd(program->handle);
    fill_maps(program->object, &options->init);
}

int program_info(const struct program *program, struct bpf_prog_info *info) {
    unsigned int length = sizeof(*info);
    return bpf_obj_get_info_by_fd(program->fd, info, &length) ? -errno : 0;
}

#define MAX_MAPS 64

static void print_info(struct json *json, const struct bpf_prog_info *info, const unsigned int *map_ids) {
    char tag[2 * BPF_TAG_SIZE + 1];
    for (int i = 0; i < BPF_TAG_SIZE; i++)
        snprintf(tag + 2 * i, 3, "%02x", info->tag[i]);
    json_integer(json, "program_id", info->id);
    json_string(json, "tag", tag);
    if (info->verified_insns) // since Linux 5.16
        json_integer(json, "verified_insns", info->verified_insns);
    else
        json_null(json, "verified_insns");
    json_integer(json, "xlated_bytes", info->xlated_prog_len);
    json_integer(json, "xlated_insns", info->xlated_prog_len / sizeof(struct bpf_insn));
    json_integer(json, "jited_bytes", info->jited_prog_len);
    json_bool(json, "jit", info->jited_prog_len > 0);
    json_integers(json, "map_ids", map_ids, info->nr_map_ids < MAX_MAPS ? info->nr_map_ids : MAX_MAPS);
}

void print_loaded(const struct program *program) {
    static struct json json;
    unsigned int map_ids[MAX_MAPS] = {};
    struct bpf_prog_info info = {.nr_map_ids = MAX_MAPS, .map_ids = (unsigned long)map_ids};
    int error = program_info(program, &info);
    if (error)
        fail("load", -error, NULL, "the loaded program cannot be read back");
    json_begin(&json, "loaded");
    json_string(&json, "name", bpf_program__name(program->handle));
    json_integer(&json, "load_ns", load_clock_ns(program->fd));
    json_integer(&json, "open_ns", program->open_ns);
    print_info(&json, &info, map_ids);
    json_end(&json);
}
