// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Nothing between two looks at the clock: what is left is the clock itself.
struct working_set {
    __u64 unused;
};

static __always_inline __u64 kernel(struct working_set *set, void *data, void *data_end, __u64 input) {
    return input;
}
