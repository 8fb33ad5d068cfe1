// SPDX-License-Identifier: Apache-2.0
#include "program.h"
#include "actions.h"
#include "attach.h"
#include "clock.h"
#include "entries.h"
#include "fail.h"
#include "interface.h"
#include "json.h"
#include "load_clock.h"
#include "records.h"
#include "refusal.h"
#include "setup.h"
#include "tables.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// The most every kernel accepts; the pages are only touched where the verifier writes.
#define VERIFIER_LOG_BYTES 16777215
#define DEVICE_BOUND (1U << 6) // BPF_F_XDP_DEV_BOUND_ONLY, since Linux 6.3

static char *verifier_log;

static bool is_wanted(const struct bpf_program *program, const struct options *options) {
    if (options->program)
        return !strcmp(bpf_program__name(program), options->program);
    if (options->section)
        return !strcmp(bpf_program__section_name(program), options->section);
    return bpf_program__type(program) == (options->tc ? BPF_PROG_TYPE_SCHED_CLS : BPF_PROG_TYPE_XDP);
}

// Of the other programs, only those are loaded that the options name: the kernel may refuse what nobody
// needs.
static void choose_program(struct program *program, const struct options *options) {
    struct bpf_program *other;
    bpf_object__for_each_program(other, program->object) {
        if (!program->handle && is_wanted(other, options))
            program->handle = other;
        bpf_program__set_autoload(other, false);
    }
    if (!program->handle)
        fail("open", ENOENT, NULL, "the object has no program %s%s",
             options->program ? "named " : "in section ",
             options->program   ? options->program
             : options->section ? options->section
             : options->tc      ? "tc"
                                : "xdp");
    program->type = options->tc ? BPF_PROG_TYPE_SCHED_CLS : BPF_PROG_TYPE_XDP;
    take_program(program->handle, program->type, attach_type_of(program->type), false);
    if (!options->tc && bpf_program__expected_attach_type(program->handle) != BPF_XDP)
        fail("open", EINVAL, NULL, "%s, in section %s, is for entries of a map, not for a device",
             bpf_program__name(program->handle), bpf_program__section_name(program->handle));
    take_companions(program, options);
}

// A map that is pinned by name would go on with what an earlier load, or another program, left in it.
static void forget_pins(struct bpf_object *object) {
    struct bpf_map *map;
    bpf_object__for_each_map(map, object) bpf_map__set_pin_path(map, NULL);
}

static void open_object(struct program *program, const struct options *options) {
    if (!verifier_log)
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
        fail("open", errno, refusal_words(), "libbpf cannot open this as a BPF object%s",
             strstr(refusal_words(), "legacy map definitions")
                 ? ": its maps are in a section `maps`, which libbpf 1 does not read; declare them in "
                   "SEC(\".maps\")"
                 : "");
    choose_program(program, options);
    if (!options->keep_pins)
        forget_pins(program->object);
}

// A section's handler counts for what is opened after it: the first time only tells the program's section and
// name.
static void open_counting(struct program *program, const struct options *options) {
    char *section = strdup(bpf_program__section_name(program->handle));
    char *name = strdup(bpf_program__name(program->handle));
    if (!section || !name)
        fail("open", ENOMEM, NULL, "no memory for the program's name");
    actions_wrap(section, name);
    bpf_object__close(program->object); // NOLINT(clang-analyzer-unix.Malloc): the handler keeps both names
    program->handle = NULL;
    open_object(program, options);
}

void open_program(struct program *program, const struct options *options) {
    program->options = options;
    open_object(program, options);
    if (options->count_actions)
        open_counting(program, options);
}

// Every program of the object uses its maps, so all belong to the device. The driver has no part in a perf
// buffer, which the kernel wants without a device.
static void bind_to_device(struct program *program, int ifindex) {
    struct bpf_program *other;
    struct bpf_map *map;
    bpf_object__for_each_program(other, program->object) if (bpf_program__autoload(other))
        bpf_program__set_ifindex(other, ifindex);
    bpf_object__for_each_map(map, program->object) if (bpf_map__type(map) != BPF_MAP_TYPE_PERF_EVENT_ARRAY)
        bpf_map__set_ifindex(map, ifindex);
}

int load_nothing(enum bpf_prog_type type, int ifindex, unsigned flags) {
    const struct bpf_insn pass[] = {
        {.code = BPF_ALU64 | BPF_MOV | BPF_K,
         .dst_reg = BPF_REG_0,
         .imm = type == BPF_PROG_TYPE_XDP ? XDP_PASS : TC_ACT_OK},
        {.code = BPF_JMP | BPF_EXIT},
    };
    LIBBPF_OPTS(bpf_prog_load_opts, options, .prog_ifindex = ifindex, .prog_flags = flags);
    return bpf_prog_load(type, "xdplab_nothing", "Dual BSD/GPL", pass, 2, &options);
}

// The answer to the least program there is: 0 where the device takes programs at all, else an errno.
static int refuses_any_program(int ifindex, unsigned flags) {
    int fd = load_nothing(BPF_PROG_TYPE_XDP, ifindex, flags);
    if (fd < 0)
        return -fd;
    close(fd);
    return 0;
}

// Of the object's programs only this one: the kernel takes no bound program as an entry of a map.
static void bind_metadata(struct program *program, const char *interface, int ifindex) {
    int error = refuses_any_program(ifindex, DEVICE_BOUND);
    char driver[32];
    read_driver(interface, driver, sizeof(driver));
    if (error) {
        interface_require(interface, ifindex);
        fail("device", error, NULL, "the driver of %s (%s) takes no program that is bound to its device: %s",
             interface, driver, error_words(error));
    }
    program->device = interface;
    bpf_program__set_ifindex(program->handle, ifindex);
    bpf_program__set_flags(program->handle, bpf_program__flags(program->handle) | DEVICE_BOUND);
}

// The map that was not made, or NULL: an object that could not be loaded keeps no trace of it but libbpf's
// words.
static const struct bpf_map *refused_map(const struct bpf_object *object) {
    char name[64];
    const char *said = strstr(refusal_words(), "libbpf: map '");
    if (!said || sscanf(said, "libbpf: map '%63[^']'", name) != 1)
        return NULL;
    return bpf_object__find_map_by_name(object, name);
}

__attribute__((noreturn)) static void refuse_map(const struct bpf_map *map, const char *step, const char *who,
                                                 int error) {
    fail(step, error, refusal_words(), "%s map %s (%s, %u entries): %s", who, bpf_map__name(map),
         libbpf_bpf_map_type_str(bpf_map__type(map)), bpf_map__max_entries(map), error_words(error));
}

__attribute__((noreturn)) static void refuse_offload(const struct program *program, const char *interface,
                                                     int error, const char *log) {
    char driver[32], who[128];
    int ifindex = interface_find(interface), of_any = refuses_any_program(ifindex, 0);
    const struct bpf_map *map = of_any ? NULL : refused_map(program->object);
    read_driver(interface, driver, sizeof(driver));
    if (map) {
        snprintf(who, sizeof(who), "the driver of %s (%s) does not take", interface, driver);
        refuse_map(map, "offload map", who, error);
    }
    error = of_any ? of_any : error;
    fail("load", error, log, "the driver of %s (%s) does not take %s for offload: %s", interface, driver,
         bpf_program__name(program->handle), error_words(error));
}

__attribute__((noreturn)) static void refuse_load(const struct program *program,
                                                  const struct options *options, int error) {
    const char *name = refusal_program(bpf_program__name(program->handle));
    const char *log = verifier_log[0] ? verifier_log : refusal_words();
    int first_error = load_clock_first_errno();
    if (!first_error && *refusal_program("")) // of another program than the watched one
        first_error = error;
    const struct bpf_map *map = first_error ? NULL : refused_map(program->object);
    if (options->mode == MODE_OFFLOAD)
        refuse_offload(program, options->interface, first_error ? first_error : error, log);
    if (map)
        refuse_map(map, "map", "the kernel refuses", error);
    if (!first_error) // libbpf does not find a kfunc
        fail(options->device_bound ? "device" : "load", error, log, "%s cannot be prepared for loading: %s",
             name, error_words(error));
    fail("load", first_error, log, "the kernel refuses %s%s: %s", name, refusal_compiler_of(options->object),
         error_words(first_error));
}

// The maps of another load of this object, which has made them in the same order.
static void share_maps(struct bpf_object *object, const char *ids) {
    struct bpf_map *map;
    bpf_object__for_each_map(map, object) {
        if (!bpf_map__autocreate(map))
            continue;
        char *end;
        int fd = bpf_map_get_fd_by_id(strtoul(ids, &end, 10));
        int error = fd < 0 ? -errno : bpf_map__reuse_fd(map, fd);
        close(fd);
        if (error)
            fail("map", -error, refusal_words(), "map %s of the other load cannot be shared: %s",
                 bpf_map__name(map), error_words(-error));
        ids = *end ? end + 1 : end;
    }
}

void load_program(struct program *program, const struct options *options, int ifindex) {
    set_constants(program->object, &options->rodata);
    resize_maps(program->object, &options->max_entries);
    if (options->zero_seed)
        zero_seeds(program->object);
    if (options->mode == MODE_OFFLOAD)
        bind_to_device(program, ifindex);
    if (options->device_bound)
        bind_metadata(program, options->interface, ifindex);
    if (options->share_maps)
        share_maps(program->object, options->share_maps);
    remember_inner_maps(program->object);
    load_clock_watch(bpf_program__name(program->handle));
    refusal_forget();
    int error = bpf_object__load(program->object);
    if (error)
        refuse_load(program, options, -error);
    program->fd = bpf_program__fd(program->handle);
    fill_maps(program->object, &options->init);
    struct bpf_prog_info info = {};
    if (!program_info(program, &info))
        program->id = info.id;
}

int program_info(const struct program *program, struct bpf_prog_info *info) {
    unsigned length = sizeof(*info);
    return bpf_obj_get_info_by_fd(program->fd, info, &length) ? -errno : 0;
}

// Of all maps that were made, in the object's order.
static void print_maps(const struct bpf_object *object) {
    const struct bpf_map *map;
    json_open_array("map_ids");
    bpf_object__for_each_map(map, object) {
        struct bpf_map_info info = {};
        unsigned length = sizeof(info);
        if (bpf_map__fd(map) >= 0 && !bpf_obj_get_info_by_fd(bpf_map__fd(map), &info, &length))
            json_integer(NULL, info.id);
    }
    json_close();
}

static void print_info(const struct bpf_prog_info *info) {
    char tag[2 * BPF_TAG_SIZE + 1];
    for (int i = 0; i < BPF_TAG_SIZE; i++)
        snprintf(tag + 2 * i, 3, "%02x", info->tag[i]);
    json_integer("program_id", info->id);
    json_string("tag", tag);
    json_known("verified_insns",
               info->verified_insns ? (long long)info->verified_insns : -1); // since Linux 5.16
    json_integer("xlated_bytes", info->xlated_prog_len);
    json_integer("xlated_insns", info->xlated_prog_len / sizeof(struct bpf_insn));
    json_integer("jited_bytes", info->jited_prog_len);
    json_bool("jit", info->jited_prog_len > 0);
}

void print_loaded(const struct program *program) {
    struct bpf_prog_info info = {};
    int error = program_info(program, &info);
    if (error)
        fail("load", -error, NULL, "the loaded program cannot be read back");
    json_begin("loaded");
    json_string("name", bpf_program__name(program->handle));
    json_integer("load_ns", load_clock_ns(program->fd));
    json_integer("open_ns", program->open_ns);
    json_integer("record_maps", records_maps());
    json_string("device", program->device);
    print_info(&info);
    print_maps(program->object);
    json_end();
}
