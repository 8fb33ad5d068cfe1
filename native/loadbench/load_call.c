// SPDX-License-Identifier: Apache-2.0
#include "load_call.h"
#include "bench.h"
#include "bpf_call.h"
#include "clock.h"

#include <errno.h>
#include <unistd.h>

struct load_call load_call;

// A sampling profiler needs more calls than a repetition has.
static void call_again(int command, const union bpf_attr *attributes, unsigned size) {
    for (unsigned i = 0; i < bench.again; i++) {
        long fd = bpf_call(command, attributes, size);
        if (fd >= 0)
            close(fd);
    }
}

long bpf_call_seen(int command, const union bpf_attr *attributes, unsigned size) {
    if (!bpf_call_loads(command, attributes, load_call.program))
        return bpf_call(command, attributes, size);
    bench_begin(load_call.repetition);
    uint64_t start = now_ns();
    long result = bpf_call(command, attributes, size);
    uint64_t end = now_ns();
    int error = errno;
    load_call.took_ns = end - start;
    load_call.error = result < 0 ? error : 0;
    bench_end(load_call.repetition);
    call_again(command, attributes, size);
    errno = error;
    return result;
}
