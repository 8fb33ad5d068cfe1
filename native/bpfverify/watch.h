// SPDX-License-Identifier: Apache-2.0
// What the watching BPF programs count while one load is under way; shared with them through their .bss.
#pragma once

struct watch {
    unsigned int tgid; // whose work counts; learnt by the program `whoami`
    unsigned int armed;
    long long pages; // allocated less freed since armed
    long long peak_pages;
    unsigned long long branches; // calls of the verifier's push_stack()
};
