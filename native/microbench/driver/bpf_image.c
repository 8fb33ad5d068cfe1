// SPDX-License-Identifier: Apache-2.0
#include "bpf_image.h"
#include "fail.h"
#include "json.h"
#include "refusal.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

struct bpf_object *bpf_image_open(const char *path) {
    const struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    struct bpf_object *object;

    setrlimit(RLIMIT_MEMLOCK, &all); // before 5.11 maps and programs are charged to it
    libbpf_set_strict_mode(LIBBPF_STRICT_ALL);
    refusal_collect();
    object = bpf_object__open_file(path, NULL);
    if (!object)
        fail("open", errno, refusal_words(), "opening %s: %s", path, strerror(errno));
    return object;
}

void bpf_image_refused(const char *path, int error) {
    fail("load", error, refusal_words(), "the kernel refuses %s of %s%s: %s", refusal_program("a program"),
         path, refusal_compiler_of(path), strerror(error));
}

void print_image(struct image image) {
    bool is_bpf = image.xlated_bytes; // no BPF program is without instructions

    json_known("jited_bytes", is_bpf ? (long long)image.jited_bytes : -1);
    json_known("xlated_bytes", is_bpf ? (long long)image.xlated_bytes : -1);
    json_end();
}

struct image bpf_image_of(int program_fd) {
    struct bpf_prog_info info = {};
    uint32_t size = sizeof(info);

    if (bpf_obj_get_info_by_fd(program_fd, &info, &size))
        fail("bpf", errno, NULL, "asking what the kernel has made of the program: %s", strerror(errno));
    return (struct image){info.jited_prog_len, info.xlated_prog_len};
}

enum { MOST_FUNCTIONS = 64 };

void bpf_image_print_code(int program_fd) {
    uint64_t starts[MOST_FUNCTIONS];
    uint32_t lengths[MOST_FUNCTIONS];
    struct bpf_prog_info info = {.nr_jited_ksyms = MOST_FUNCTIONS,
                                 .jited_ksyms = (uintptr_t)starts,
                                 .nr_jited_func_lens = MOST_FUNCTIONS,
                                 .jited_func_lens = (uintptr_t)lengths};
    uint32_t size = sizeof(info);

    if (bpf_obj_get_info_by_fd(program_fd, &info, &size))
        fail("bpf", errno, NULL, "asking where the program's code is: %s", strerror(errno));
    for (uint32_t i = 0; i < info.nr_jited_ksyms && i < MOST_FUNCTIONS; i++)
        print_code(starts[i], lengths[i]);
}
