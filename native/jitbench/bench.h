// SPDX-License-Identifier: Apache-2.0
// What is measured, and how often. A subject is one program or filter with what it works on; all subjects of
// a call take turns, so that what a machine does besides falls on each of them alike.
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { NAME_BYTES = 80, WORDS_BYTES = 4096, MOST_SUBJECTS = 64, MOST_ROUNDS = 1000, PAGE_BYTES = 4096 };

struct ring;

struct subject {
    char name[NAME_BYTES];
    uint8_t *code; // eight bytes an instruction, eBPF or classic; none: nothing is attached
    size_t code_bytes;
    uint8_t *data; // packet, frame or payload
    size_t data_bytes;
    long number;          // entries of the map, argument of the system call, or how many packet sockets
    char map[NAME_BYTES]; // kind of the program's map

    int fd;                             // of the program, or the socket that sends
    int peer;                           // socket that receives
    int tap;                            // packet socket the filter is attached to
    int *taps;                          // or all of them, where they are many
    long long insns, xlated, jited;     // instructions; bytes after the verifier; bytes of machine code
    long long verdict;                  // of its last run
    const char *policy_wanted, *policy; // scheduling policy asked for, and the one it has; NULL: none was
    long long passed;        // packets of the last round that a packet socket let through; -1: not counted
    struct ring *ring;       // the program's ring buffer; NULL: it has none
    long long *ns;           // of each round
    const char *failed;      // what did not work; all is well while it is NULL
    int error;               // errno of it
    char words[WORDS_BYTES]; // what the kernel said of it
};

struct bench {
    const char *name;
    const char *says;
    int (*begin)(void);                                // before the first subject; may be NULL
    int (*open)(struct subject *subject);              // all return 0, or -1 with `failed` set
    int (*batch)(struct subject *subject, long times); // runs it so often and sets `verdict` and `batch_ns`
    void (*close)(struct subject *subject);
};

struct rounds {
    long times; // runs in one round
    long rounds;
};

extern long long batch_ns; // how long the last batch took

extern const struct bench PROGRAMS, SOCKET_FILTERS, SECCOMP_FILTERS, TRAFFIC, TCP_RR, TCP_STREAM;

int blame(struct subject *subject, const char *what); // keeps errno of it; returns -1
// Calls once() so often between two looks at the clock. Returns -1 when it does.
int time_loop(struct subject *subject, long times, int (*once)(struct subject *subject));
int measure(const struct bench *bench, struct subject *subjects, size_t count, const struct rounds *rounds);
