// SPDX-License-Identifier: Apache-2.0
// The program on the interface, held by a bpf_link: the kernel takes it off when its owner dies. A filter of
// tc has no link: a process beside the owner takes it off.
#pragma once

#include "options.h"
#include "program.h"

void read_driver(const char *name, char *driver, size_t room); // the kernel driver's name, or "unknown"
// An error line where any program of XDP or tcx is attached already, or a filter that xdpload left.
void refuse_if_taken(const struct options *options, int ifindex);
void attach_program(const struct program *program, const struct options *options, int ifindex);
const char *attached_interface(void); // NULL while nothing is attached
int exchange_program(int fd);         // puts another program behind the same link; 0 or -errno

// `attached`: prints anew how the kernel says that the program is attached.
void attached(const struct program *program, char *arguments);
bool detach_program(void); // whether nothing stays; safe in a signal handler
