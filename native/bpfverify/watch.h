// SPDX-License-Identifier: Apache-2.0
// What the watching BPF programs count while one load is under way; shared with them through their .bss.
#pragma once

struct watch {
    unsigned tgid; // whose work counts; learnt by the program `whoami`
    unsigned armed;
    unsigned epoch;  // of the load: what an earlier one left allocated is not this one's to free
    long long pages; // allocated less freed since armed
    long long peak_pages;
    long long slab_bytes; // kmalloc less kfree, in the bytes that the allocator hands out
    long long peak_slab_bytes;
    unsigned long long slab_lost; // allocations that the table of live ones had no space for
    unsigned long long branches;  // calls of the verifier's push_stack()
    // Where push_stack() cannot be traced: its code, and the bytes that it asks for once per call. 0: not
    // used.
    unsigned long long push_stack_begin, push_stack_end;
    unsigned long long element_bytes;
};
