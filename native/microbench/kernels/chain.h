// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// A chain of `input` links, each of which does a little work and goes on to the next: by tail call in BPF
// (the wrapper is bpf/chain.bpf.c), by recursion elsewhere. BPF's last link reads the clock, since nothing
// leads back.
struct working_set {
    __u64 value;
    __u64 left;
};

static __always_inline void begin_chain(struct working_set *set, __u64 links) {
    set->value = links;
    set->left = links;
}

// Does one link's work; returns how many are left.
static __always_inline __u64 work(struct working_set *set) {
    set->value = xorshift(set->value);
    return --set->left;
}

#ifndef __bpf__
static noinline __u64 chain_link(struct working_set *set) {
    __u64 value;

    if (!work(set))
        return set->value;
    value = chain_link(set);
    KEEP(value); // or the compiler makes a loop of it
    return value;
}

static __always_inline __u64 kernel(struct working_set *set, void *data, void *data_end, __u64 input) {
    begin_chain(set, input);
    return chain_link(set);
}
#endif
