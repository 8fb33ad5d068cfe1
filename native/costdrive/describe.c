// SPDX-License-Identifier: Apache-2.0
#include "describe.h"
#include "fail.h"
#include "json.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *room(size_t count, size_t size) {
    void *memory = calloc(count + 1, size);

    if (!memory)
        fail("describe", ENOMEM, NULL, "no memory for a program's description");
    return memory;
}

static void read_info(int fd, struct bpf_prog_info *info) {
    unsigned length = sizeof(*info);

    if (bpf_obj_get_info_by_fd(fd, info, &length))
        fail("describe", errno, NULL, "a loaded program cannot be read back");
}

unsigned long long entry_of(int fd) {
    unsigned long long entry = 0;
    struct bpf_prog_info info = {.nr_jited_ksyms = 1, .jited_ksyms = (unsigned long)&entry};

    read_info(fd, &info);
    if (!entry)
        fail("describe", ENOTSUP, NULL, "the kernel has no JIT, or hides its code");
    return entry;
}

static void print_code(const unsigned char *code, unsigned size) {
    char *text = room(2 * (size_t)size, 1);

    for (unsigned i = 0; i < size; i++)
        sprintf(text + 2 * i, "%02x", code[i]);
    json_string("code", text);
    free(text);
}

static const char *function_name(const struct btf *btf, const struct bpf_prog_info *info, unsigned index) {
    const struct bpf_func_info *functions = (void *)info->func_info;
    const struct btf_type *type =
        btf && index < info->nr_func_info ? btf__type_by_id(btf, functions[index].type_id) : NULL;

    return type ? btf__name_by_offset(btf, type->name_off) : index ? NULL : info->name;
}

static void print_functions(const struct btf *btf, const struct bpf_prog_info *info) {
    const unsigned long long *starts = (void *)info->jited_ksyms;
    const unsigned *sizes = (void *)info->jited_func_lens;
    const unsigned char *code = (void *)info->jited_prog_insns;

    json_open_array("functions");
    for (unsigned i = 0; i < info->nr_jited_ksyms; i++) {
        json_open_object(NULL);
        json_string("name", function_name(btf, info, i));
        json_count("address", starts[i]);
        print_code(code, sizes[i]);
        json_close();
        code += sizes[i];
    }
    json_close();
}

static void print_lines(const struct btf *btf, const struct bpf_prog_info *info) {
    const struct bpf_line_info *lines = (void *)info->line_info;
    const unsigned long long *addresses = (void *)info->jited_line_info;

    json_open_array("lines");
    for (unsigned i = 0; btf && i < info->nr_jited_line_info && i < info->nr_line_info; i++) {
        json_open_object(NULL);
        json_count("address", addresses[i]);
        json_integer("line", BPF_LINE_INFO_LINE_NUM(lines[i].line_col));
        json_string("file", btf__name_by_offset(btf, lines[i].file_name_off));
        json_string("text", btf__name_by_offset(btf, lines[i].line_off));
        json_close();
    }
    json_close();
}

void describe(unsigned id, const char *role) {
    int fd = bpf_prog_get_fd_by_id(id);
    struct bpf_prog_info size = {}, info = {};

    if (fd < 0)
        fail("describe", errno, NULL, "there is no program %u", id);
    read_info(fd, &size);
    info.jited_prog_len = size.jited_prog_len;
    info.jited_prog_insns = (unsigned long)room(size.jited_prog_len, 1);
    info.nr_jited_ksyms = size.nr_jited_ksyms;
    info.jited_ksyms = (unsigned long)room(size.nr_jited_ksyms, sizeof(__u64));
    info.nr_jited_func_lens = size.nr_jited_func_lens;
    info.jited_func_lens = (unsigned long)room(size.nr_jited_func_lens, sizeof(__u32));
    info.nr_func_info = size.nr_func_info;
    info.func_info_rec_size = sizeof(struct bpf_func_info);
    info.func_info = (unsigned long)room(size.nr_func_info, sizeof(struct bpf_func_info));
    info.nr_line_info = size.nr_line_info;
    info.line_info_rec_size = sizeof(struct bpf_line_info);
    info.line_info = (unsigned long)room(size.nr_line_info, sizeof(struct bpf_line_info));
    info.nr_jited_line_info = size.nr_jited_line_info;
    info.jited_line_info_rec_size = sizeof(__u64);
    info.jited_line_info = (unsigned long)room(size.nr_jited_line_info, sizeof(__u64));
    read_info(fd, &info);
    if (!info.jited_prog_len)
        fail("describe", ENOTSUP, NULL, "the kernel has no JIT, or hides its code");
    struct btf *btf = info.btf_id ? btf__load_from_kernel_by_id(info.btf_id) : NULL;
    json_begin("program");
    json_string("role", role);
    json_string("name", info.name);
    json_integer("insns", info.xlated_prog_len / sizeof(struct bpf_insn));
    print_functions(btf, &info);
    print_lines(btf, &info);
    json_end();
    close(fd);
}
