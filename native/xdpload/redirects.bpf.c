// SPDX-License-Identifier: Apache-2.0
#include <linux/bpf.h>
#include <stdbool.h>

#include "redirects.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

// The kernel's own structs, as far as needed; the loader finds the offsets (CO-RE). They are not const:
// BPF_CORE_READ declares a variable of the field's type, which clang 21 refuses without a value.
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct bpf_prog_aux {
    __u32 id;
};
struct bpf_prog {
    struct bpf_prog_aux *aux;
};
// What libbpf matches is the name up to the three underscores: linux/bpf.h has a struct of that name already.
struct bpf_map___kernel {
    enum bpf_map_type map_type;
    __u32 id;
};
struct ns_common {
    unsigned inum;
};
struct net {
    struct ns_common ns;
};
typedef struct {
    struct net *net;
} possible_net_t;
struct net_device {
    int ifindex;
    possible_net_t nd_net;
};
struct sched_entity {
    __u64 sum_exec_runtime;
};
struct task_struct {
    struct sched_entity se;
};
#pragma clang attribute pop

const volatile struct redirect_settings settings SEC(".rodata");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, REDIRECT_TARGETS);
    __type(key, struct redirect_target);
    __type(value, struct redirect_decisions);
} decisions SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, REDIRECT_TARGETS);
    __type(key, struct redirect_arrival);
    __type(value, struct redirect_arrivals);
} arrivals SEC(".maps");

static __always_inline bool is_ours(struct bpf_prog *program) {
    return BPF_CORE_READ(program, aux, id) == settings.program_id;
}

static __always_inline struct redirect_decisions *decisions_of(const struct redirect_target *target) {
    struct redirect_decisions none = {};
    struct redirect_decisions *found = bpf_map_lookup_elem(&decisions, target);
    if (found)
        return found;
    bpf_map_update_elem(&decisions, target, &none, BPF_NOEXIST);
    return bpf_map_lookup_elem(&decisions, target);
}

static __always_inline struct redirect_arrivals *arrivals_of(const struct redirect_arrival *arrival) {
    struct redirect_arrivals none = {};
    struct redirect_arrivals *found = bpf_map_lookup_elem(&arrivals, arrival);
    if (found)
        return found;
    bpf_map_update_elem(&arrivals, arrival, &none, BPF_NOEXIST);
    return bpf_map_lookup_elem(&arrivals, arrival);
}

// An argument of the event. Read where it stands: clang 23 would first choose the address, which the verifier
// refuses.
#define ARGUMENT(event, number) (*(const volatile __u64 *)&(event)->args[number])

// Before Linux 5.13 the fifth argument is the map itself, and the sixth, the index, is the last; since then
// the fifth and sixth are the map's type and id. The settings are constants to the verifier: what they
// exclude is not there.
static __always_inline struct redirect_target target_of(const struct bpf_raw_tracepoint_args *event) {
    __u64 fifth = ARGUMENT(event, 4), sixth = ARGUMENT(event, 5);
    if (!settings.map_is_pointer)
        return (struct redirect_target){.map_type = fifth, .map_id = sixth, .index = ARGUMENT(event, 6)};
    if (!fifth) // bpf_redirect: no map, the index is the interface
        return (struct redirect_target){.index = sixth};
    struct bpf_map___kernel *map = (void *)fifth;
    return (struct redirect_target){
        .map_type = BPF_CORE_READ(map, map_type), .map_id = BPF_CORE_READ(map, id), .index = sixth};
}

static __always_inline struct redirect_decisions *decided(const struct bpf_raw_tracepoint_args *event) {
    struct redirect_target target = target_of(event);
    return is_ours((struct bpf_prog *)event->args[1]) ? decisions_of(&target) : NULL;
}

SEC("raw_tp/xdp_redirect")
int redirect(struct bpf_raw_tracepoint_args *event) {
    struct redirect_decisions *found = decided(event);
    if (found)
        __sync_fetch_and_add(&found->accepted, 1);
    return 0;
}

SEC("raw_tp/xdp_redirect_err")
int redirect_err(struct bpf_raw_tracepoint_args *event) {
    struct redirect_decisions *found = decided(event);
    if (found)
        __sync_fetch_and_add(&found->refused, 1);
    return 0;
}

static __always_inline void arrive(struct redirect_arrival arrival, __u64 taken, __u64 dropped) {
    struct redirect_arrivals *found = arrivals_of(&arrival);
    if (!found)
        return;
    __sync_fetch_and_add(&found->taken, taken);
    __sync_fetch_and_add(&found->dropped, dropped);
}

SEC("raw_tp/xdp_devmap_xmit")
int devmap_xmit(struct bpf_raw_tracepoint_args *event) {
    struct net_device *from = (void *)event->args[0], *to = (void *)event->args[1];
    int sent = event->args[2], dropped = event->args[3];
    if ((__u32)BPF_CORE_READ(from, ifindex) != settings.ifindex ||
        BPF_CORE_READ(from, nd_net.net, ns.inum) != settings.netns)
        return 0;
    arrive((struct redirect_arrival){.place = PLACE_DEVICE, .index = BPF_CORE_READ(to, ifindex)},
           sent > 0 ? sent : 0, dropped > 0 ? dropped : 0);
    return 0;
}

SEC("raw_tp/xdp_cpumap_enqueue")
int cpumap_enqueue(struct bpf_raw_tracepoint_args *event) {
    arrive((struct redirect_arrival){.place = PLACE_CPU_QUEUE,
                                     .map_id = event->args[0],
                                     .index = event->args[3]},
           (__u32)event->args[1], (__u32)event->args[2]);
    return 0;
}

// Runs in the CPU's thread: its time is the current task's.
SEC("raw_tp/xdp_cpumap_kthread")
int cpumap_kthread(struct bpf_raw_tracepoint_args *event) {
    struct redirect_arrival arrival = {
        .place = PLACE_CPU_THREAD, .map_id = event->args[0], .index = bpf_get_smp_processor_id()};
    struct task_struct *task = (void *)bpf_get_current_task();
    struct redirect_arrivals *found = arrivals_of(&arrival);
    if (!found)
        return 0;
    found->taken += (__u32)event->args[1];
    found->dropped += (__u32)event->args[2];
    found->last_ns = BPF_CORE_READ(task, se.sum_exec_runtime);
    if (!found->first_ns)
        found->first_ns = found->last_ns;
    return 0;
}
