// SPDX-License-Identifier: Apache-2.0
// BPF_PROG_LOAD is timed from just before to just after the system call: no ELF parsing, relocation, map
// creation or feature probe is in it. Feature probes load programs too, hence the time is kept by the file
// descriptor the kernel returned. `strace -T -e bpf` shows the same calls.
#include "load_clock.h"
#include "bpf_call.h"
#include "clock.h"

#include <errno.h>

#define TRACKED_FDS 1024

static long long load_ns[TRACKED_FDS];
static const char *watched;
static int first_errno;

long bpf_call_seen(int command, const union bpf_attr *attributes, unsigned size) {
    uint64_t start = now_ns();
    long result = bpf_call(command, attributes, size);
    uint64_t end = now_ns();

    if (command == BPF_PROG_LOAD && result >= 0 && result < TRACKED_FDS)
        load_ns[result] = end - start;
    else if (result < 0 && !first_errno && bpf_call_loads(command, attributes, watched))
        first_errno = errno;
    return result;
}

long long load_clock_ns(int program_fd) {
    if (program_fd < 0 || program_fd >= TRACKED_FDS || !load_ns[program_fd])
        return -1;
    return load_ns[program_fd];
}

void load_clock_watch(const char *program_name) {
    watched = program_name;
    first_errno = 0;
}

int load_clock_first_errno(void) { return first_errno; }
