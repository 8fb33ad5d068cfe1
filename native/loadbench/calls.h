// SPDX-License-Identifier: Apache-2.0
// What fentry and fexit see of the verifier and the JIT; in the memory both sides share.
#pragma once

struct calls {
    unsigned tgid;            // only this process is looked at
    unsigned in_check;        // bpf_check() is running
    long long check_start_ns; // when it was entered
    long long jit_start_ns;
    long long check_ns;      // bpf_check(), with what it calls
    long long jit_ns;        // bpf_int_jit_compile(), every call
    long long jit_inside_ns; // of it, the calls that bpf_check() makes
};
