// SPDX-License-Identifier: Apache-2.0
#include "refused.h"
#include "object.h"
#include "refusal.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

static struct {
    struct bpf_object *object;
    struct bpf_link *link;
    int taken;
    uint64_t *values; // one per possible CPU
    uint64_t before;
} refused;

const char *refused_open(const struct session *session) {
    struct refused_settings settings = {.ifindex = session->ifindex};
    static char reason[512];
    struct stat netns;

    if (stat("/proc/self/ns/net", &netns))
        return "/proc is not mounted";
    settings.netns = netns.st_ino;
    refused.object = OBJECT_OPEN(refused, &settings);
    refusal_forget();
    if (!refused.object || bpf_object__load(refused.object)) {
        snprintf(reason, sizeof(reason),
                 "the kernel does not let the tracepoint xdp_devmap_xmit be read (%s%s): %s",
                 refusal_program("count_taken"), object_compiler(), refusal_reason());
        return reason;
    }
    refused.taken = object_map_fd(refused.object, "taken");
    refused.values = per_cpu_values(sizeof(*refused.values));
    refused.link = bpf_program__attach(bpf_object__find_program_by_name(refused.object, "count_taken"));
    return refused.values && refused.link ? NULL : "the tracepoint xdp_devmap_xmit cannot be attached to";
}

static uint64_t taken(void) {
    const uint32_t zero = 0;
    uint64_t sum = 0;

    if (!bpf_map_lookup_elem(refused.taken, &zero, refused.values))
        for (int cpu = 0; cpu < libbpf_num_possible_cpus(); cpu++)
            sum += refused.values[cpu];
    return sum;
}

void refused_begin(void) { refused.before = taken(); }

uint64_t refused_read(uint64_t sent) {
    const uint64_t took = taken() - refused.before;

    return took < sent ? sent - took : 0;
}

void refused_close(void) {
    bpf_link__destroy(refused.link);
    bpf_object__close(refused.object);
    free(refused.values);
}
