// SPDX-License-Identifier: Apache-2.0
// chase, read: 400 accesses per packet in 4096 bytes, then the frame is sent back.
#include <linux/bpf.h>
#include <linux/if_ether.h>

#include <bpf/bpf_helpers.h>

#define COUNTER SEC(".data.xdplab_count")
#define SUBPROGRAM __noinline // verified once, by itself

/* ---- the workload: from here on the same text in the kernel and in user space ---- */

/* The compiler must have the value here, and forget what it knows of it. */
#define KEEP(value) __asm__ volatile("" : "+r"(value))

#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#define NO_UNROLL _Pragma("clang loop unroll(disable)")
#else
#define UNROLL _Pragma("GCC unroll 65534")
#define NO_UNROLL _Pragma("GCC unroll 1")
#endif

#ifdef XDPLAB_COUNT // a counting build: every access leaves a mark
volatile __u64 xdplab_count COUNTER;
#define COUNT_ACCESS() (xdplab_count++)
#else
#define COUNT_ACCESS()
#endif

static __always_inline void swap_macs(void *frame) {
    volatile __u16 *destination = frame, *source = destination + ETH_ALEN / 2;

    UNROLL
    for (int i = 0; i < ETH_ALEN / 2; i++) {
        __u16 half = destination[i];
        destination[i] = source[i];
        source[i] = half;
    }
}

/* A block is accesses in a row, between two turns of the loop. */
#define ACCESSES 400
#define BLOCK 32
#define SLOTS 64

/* One cache line. The loader links all slots to one cycle, in random order. */
struct slot {
    __u64 next;
    __u64 mark;
    __u64 unused[6];
};

struct workload_state {
    __u64 at; // the slot where the last packet stopped
    __u64 unused[7];
    struct slot slots[SLOTS];
};

static __always_inline __u64 follow(struct workload_state *state, __u64 at, int count) {
    struct slot *slots = state->slots;

    KEEP(slots); // or a compiler adds the header's length again, in every access
    UNROLL
    for (int i = 0; i < count; i++) {
        volatile struct slot *slot = &slots[at & (SLOTS - 1)];

        KEEP(slot); // every compiler: and, shift, add, load; no addressing mode that a BPF JIT does not have
        at = slot->next;
        COUNT_ACCESS();
    }
    return at;
}

static __always_inline __u64 workload(struct workload_state *state, void *data, void *data_end) {
    __u64 at = state->at;

    NO_UNROLL
    for (int i = 0; i < ACCESSES / BLOCK; i++) {
        at = follow(state, at, BLOCK);
    }
    at = follow(state, at, ACCESSES % BLOCK);
    state->at = at;
    return at;
}

/* ---- the XDP program around it ---- */

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1); // the loader makes it one for every CPU
    __type(key, __u32);
    __type(value, struct workload_state);
} working_set SEC(".maps");

static __always_inline struct workload_state *find_state(void) {
    __u32 cpu = bpf_get_smp_processor_id();

    return bpf_map_lookup_elem(&working_set, &cpu);
}

SEC("xdp")
int xdplab_chase(struct xdp_md *ctx) {
    void *data = (void *)(long)ctx->data;
    void *data_end = (void *)(long)ctx->data_end;
    struct workload_state *state = find_state();
    __u64 result;

    if (data + ETH_HLEN > data_end)
        return XDP_DROP;
    if (!state)
        return XDP_ABORTED;
    result = workload(state, data, data_end);
    KEEP(result);
    swap_macs(data);
    return XDP_TX;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
