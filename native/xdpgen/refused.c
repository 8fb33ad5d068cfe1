// SPDX-License-Identifier: Apache-2.0
#include "refused.h"
#include "object.h"
#include "refusal.h"

#include <stdio.h>
#include <sys/stat.h>

#include <bpf/libbpf.h>

static struct {
    struct bpf_object *object;
    struct bpf_link *link;
    struct refused_memory *memory;
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
                 refusal_program("count_refused"), object_compiler(), refusal_reason());
        return reason;
    }
    refused.memory = object_memory(refused.object, sizeof(*refused.memory));
    refused.link = bpf_program__attach(bpf_object__find_program_by_name(refused.object, "count_refused"));
    return refused.memory && refused.link ? NULL : "the tracepoint xdp_devmap_xmit cannot be attached to";
}

void refused_begin(void) { *refused.memory = (struct refused_memory){0}; }

uint64_t refused_read(uint64_t sent) { return refused.memory->took_some ? refused.memory->frames : sent; }

void refused_close(void) {
    bpf_link__destroy(refused.link);
    bpf_object__close(refused.object);
}
