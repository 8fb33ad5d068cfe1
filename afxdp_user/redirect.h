// SPDX-License-Identifier: Apache-2.0
// The XDP program in front of the sockets: loaded from the binary itself, owned through a bpf_link.
#pragma once

#define MAX_QUEUES 64

#ifndef __bpf__
#include <stdbool.h>
#include <stdint.h>

struct redirect {
    struct bpf_object *object;
    int ifindex;
    int program_fd;
    int map_fd;
    int link_fd;
    unsigned program_id;
    const char *mode_obtained;
};

// `frags`: its program takes frames in several buffers.
void redirect_load(struct redirect *redirect, const char *interface, bool frags);
void redirect_add(const struct redirect *redirect, unsigned queue, int socket_fd);

// Attaches in exactly the requested mode. A program that is already attached is an error, which names its id.
void redirect_attach(struct redirect *redirect, const char *interface, bool native);
void redirect_detach(struct redirect *redirect);

// Returns the number of frames that were dropped because their queue had no socket.
uint64_t redirect_unbound_packets(const struct redirect *redirect);
#endif
