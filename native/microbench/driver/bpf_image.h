// SPDX-License-Identifier: Apache-2.0
#ifndef MICROBENCH_BPF_IMAGE_H
#define MICROBENCH_BPF_IMAGE_H

#include "backend.h"

struct bpf_object;

// Opens a BPF object file; libbpf's own warnings are kept. Ends the program on error.
struct bpf_object *bpf_image_open(const char *path);

// Ends the program with the name of what was refused, its compiler and the verifier's last words.
void bpf_image_refused(const char *path, int error) __attribute__((noreturn));

// Ends a JSON line with the image's sizes; null for what is no BPF.
void print_image(struct image image);

// What the kernel has made of a loaded program.
struct image bpf_image_of(int program_fd);

// Prints where the machine code of a program and of its subprograms lies.
void bpf_image_print_code(int program_fd);

#endif
