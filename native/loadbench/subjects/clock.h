// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// One read of the clock: the simplest program of "eBPF against modules" (docs/use/loading.md).
#define KEEP(value) __asm__ volatile("" : "+r"(value))

struct working_set {
    __u64 unused;
};

static inline void swap_macs(void *frame) {}

static inline __u64 kernel(struct working_set *set, void *data, void *data_end, __u64 input) {
    return ktime_get_mono_fast_ns();
}
