// SPDX-License-Identifier: Apache-2.0
// When frames arrive, whoever sends them: the first and the last time, and the gaps between two frames.
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#define GAP_BUCKETS 4096

char LICENSE[] SEC("license") = "Dual BSD/GPL";

// One sender on one CPU, whose frames are received where they are sent: no two CPUs write at once.
struct arrivals {
    __u64 frames, first_ns, last_ns;
    __u64 gaps[GAP_BUCKETS]; // 64 buckets per octave
} arrivals SEC(".bss");

static __always_inline __u32 bucket_of(__u64 ns) {
    __u32 octave = 0;

    for (int i = 0; i < 40 && ns >> octave >= 128; i++)
        octave++;
    return (octave << 6) + (ns >> octave); // below 128 exactly; then 64 to 127 of each octave
}

SEC("xdp/gaps")
int note_arrival(struct xdp_md *ctx) {
    __u64 now = bpf_ktime_get_ns();

    (void)ctx;
    if (arrivals.frames++) {
        __u32 bucket = bucket_of(now - arrivals.last_ns);
        if (bucket < GAP_BUCKETS)
            arrivals.gaps[bucket]++;
    } else {
        arrivals.first_ns = now;
    }
    arrivals.last_ns = now;
    return XDP_DROP;
}
