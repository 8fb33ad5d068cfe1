// SPDX-License-Identifier: Apache-2.0
#include "redirects.h"
#include "fail.h"
#include "json.h"
#include "refusal.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_INTERFACES 64
#define MAX_MAPS 64

extern const char embedded_redirects_start[], embedded_redirects_end[];

static struct bpf_object *follower;
static char missing[512] = "redirects are not followed";
static enum mode mode;

// ---- what interfaces sent: in generic mode no tracepoint tells it ----

static struct {
    unsigned index;
    long long sent;
} interfaces[MAX_INTERFACES];

// tx_packets of an interface, or -1.
static long long sent_by(unsigned index) {
    char name[IF_NAMESIZE], path[128];
    long long packets = -1;
    if (!if_indextoname(index, name))
        return -1;
    snprintf(path, sizeof(path), "/sys/class/net/%s/statistics/tx_packets", name);
    FILE *file = fopen(path, "r");
    if (!file)
        return -1;
    if (fscanf(file, "%lld", &packets) != 1)
        packets = -1;
    fclose(file);
    return packets;
}

static void read_interfaces(void) {
    struct if_nameindex *all = if_nameindex();
    for (size_t i = 0; all && all[i].if_index && i < MAX_INTERFACES; i++) {
        interfaces[i].index = all[i].if_index;
        interfaces[i].sent = sent_by(all[i].if_index);
    }
    if_freenameindex(all);
}

// What an interface has sent since read_interfaces(), or -1.
static long long gained_by(unsigned index) {
    long long now = sent_by(index);
    for (size_t i = 0; i < MAX_INTERFACES; i++)
        if (interfaces[i].index == index && interfaces[i].sent >= 0 && now >= 0)
            return now - interfaces[i].sent;
    return -1;
}

// ---- following ----

static struct bpf_object *open_follower(const struct redirect_settings *settings) {
    LIBBPF_OPTS(bpf_object_open_opts, options, .object_name = "redirects");
    struct bpf_object *object = bpf_object__open_mem(
        embedded_redirects_start, embedded_redirects_end - embedded_redirects_start, &options);
    struct bpf_map *rodata = object ? bpf_object__find_map_by_name(object, ".rodata") : NULL;
    if (!rodata || bpf_map__set_initial_value(rodata, settings, sizeof(*settings)))
        fail("open", EINVAL, refusal_words(), "the embedded program that follows redirects cannot be opened");
    return object;
}

// A link may end with the process only: nothing keeps it.
static bool attach_all(struct bpf_object *object) {
    struct bpf_program *program;
    bpf_object__for_each_program(program, object) if (!bpf_program__attach(program)) return false;
    return true;
}

// A kernel refuses to attach what reads more arguments than its tracepoint has: which it has is found by
// trying.
static bool follow(const struct redirect_settings *settings) {
    struct bpf_object *object = open_follower(settings);
    refusal_forget();
    if (!bpf_object__load(object) && attach_all(object)) {
        follower = object;
        return true;
    }
    bpf_object__close(object);
    return false;
}

void redirects_follow(const struct program *program, const struct options *options, int ifindex) {
    struct redirect_settings settings = {.program_id = program->id, .ifindex = ifindex};
    struct stat netns;
    mode = options->mode;
    if (stat("/proc/self/ns/net", &netns))
        fail("open", errno, NULL, "/proc is not mounted");
    settings.netns = netns.st_ino;
    read_interfaces();
    if (follow(&settings))
        return;
    settings.map_is_pointer = true;
    if (follow(&settings))
        return;
    snprintf(missing, sizeof(missing), "the kernel does not let XDP's tracepoints be read: %s%s: %s",
             refusal_program("redirects"),
             refusal_compiler(embedded_redirects_start, embedded_redirects_end - embedded_redirects_start),
             refusal_reason());
}

// ---- what was seen ----

static struct redirect_arrivals arrivals_at(enum redirect_place place, unsigned map_id, unsigned index) {
    struct redirect_arrival key = {.place = place, .map_id = map_id, .index = index};
    struct redirect_arrivals found = {};
    bpf_map_lookup_elem(bpf_object__find_map_fd_by_name(follower, "arrivals"), &key, &found);
    return found;
}

// The interface in a slot of a map of devices; 0 where it is empty. A value may hold a program's id too.
static unsigned device_in(int map, unsigned slot) {
    unsigned value[2] = {};
    return bpf_map_lookup_elem(map, &slot, value) ? 0 : value[0];
}

// What one device, or all those of a broadcast, took and lost; negative where the kernel does not tell it.
struct taken {
    long long arrived, dropped;
};

// In generic mode frames leave like any other packet of the interface.
static struct taken taken_by(unsigned ifindex) {
    struct redirect_arrivals found = arrivals_at(PLACE_DEVICE, 0, ifindex);
    if (mode == MODE_GENERIC)
        return (struct taken){gained_by(ifindex), -1};
    return (struct taken){found.taken, found.dropped};
}

static void print_taken(const char *kind, const char *name, struct taken taken) {
    json_string("kind", kind);
    json_string("name", name);
    json_known("arrived", taken.arrived);
    json_known("dropped", taken.dropped);
    json_null("busy_ns");
}

static void print_device(unsigned ifindex) {
    char name[IF_NAMESIZE] = "";
    print_taken("device", ifindex && if_indextoname(ifindex, name) ? name : NULL, taken_by(ifindex));
}

// Whether another redirect names this slot of the map, too.
static bool is_named(const struct redirect_target *target, unsigned slot) {
    struct redirect_target other = *target;
    struct redirect_decisions found;
    other.index = slot;
    return slot != target->index &&
           !bpf_map_lookup_elem(bpf_object__find_map_fd_by_name(follower, "decisions"), &other, &found);
}

// A broadcast's frames go to every device of the map; the slot that it names may be empty, or any. Returns
// what the devices took that no other redirect names, and their names.
static struct taken taken_by_all(int map, const struct redirect_target *target, char *names, size_t room) {
    struct taken all = {0, mode == MODE_GENERIC ? -1 : 0};
    unsigned slot, *last = NULL, seen[MAX_INTERFACES] = {}, count = 0;
    char name[IF_NAMESIZE];
    for (; !bpf_map_get_next_key(map, last, &slot) && count < MAX_INTERFACES; last = &slot) {
        unsigned device = device_in(map, slot);
        struct taken one = taken_by(device);
        bool is_new = true;
        for (size_t i = 0; i < count; i++)
            is_new &= seen[i] != device;
        if (!is_new || one.arrived + (one.dropped > 0) <= 0 || is_named(target, slot) ||
            !if_indextoname(device, name))
            continue;
        seen[count++] = device;
        snprintf(names + strlen(names), room - strlen(names), "%s%s", *names ? ", " : "", name);
        all.arrived += one.arrived;
        all.dropped += mode == MODE_GENERIC ? 0 : one.dropped;
    }
    return all;
}

// In generic mode a device may have sent a few frames of others.
static void print_devices(const struct redirect_target *target, const struct redirect_decisions *decided) {
    int map = bpf_map_get_fd_by_id(target->map_id);
    unsigned device = device_in(map, target->index);
    char names[512] = "";
    struct taken all = taken_by_all(map, target, names, sizeof(names));
    struct taken own = device ? taken_by(device) : (struct taken){0, 0};
    if ((uint64_t)(all.arrived - own.arrived) > decided->accepted / 2 || (!device && decided->accepted))
        print_taken("broadcast", names, all);
    else
        print_device(device);
    if (map >= 0)
        close(map);
}

// In generic mode a full queue refuses a frame, which its own count holds too.
static void print_cpu(const struct redirect_target *target, const struct redirect_decisions *decided) {
    struct redirect_arrivals queue = arrivals_at(PLACE_CPU_QUEUE, target->map_id, target->index);
    struct redirect_arrivals thread = arrivals_at(PLACE_CPU_THREAD, target->map_id, target->index);
    uint64_t lost = queue.dropped + thread.dropped;
    char name[16];
    snprintf(name, sizeof(name), "%u", target->index);
    json_string("kind", "cpu");
    json_string("name", name);
    json_integer("arrived", thread.taken);
    json_integer("dropped", lost > decided->refused ? lost - decided->refused : 0);
    json_integer("busy_ns", thread.last_ns - thread.first_ns);
}

// The kernel accepts a redirect to a socket once the frame is in the socket's RX ring, and refuses it where
// that ring is full or the fill ring is empty (xsk_rcv of net/xdp/xsk.c): accepted frames are those that
// arrived.
static void print_socket(const struct redirect_target *target, const struct redirect_decisions *decided) {
    bool is_socket = target->map_type == BPF_MAP_TYPE_XSKMAP;
    char name[16];
    snprintf(name, sizeof(name), "%u", target->index);
    json_string("kind", is_socket ? "socket" : "other");
    json_string("name", name);
    json_known("arrived", is_socket ? (long long)decided->accepted : -1);
    json_known("dropped", is_socket ? 0 : -1);
    json_null("busy_ns");
}

static void print_target(const struct redirect_target *target, const struct redirect_decisions *decided) {
    json_open_object(NULL);
    json_integer("accepted", decided->accepted);
    json_integer("refused", decided->refused);
    switch (target->map_type) {
    case BPF_MAP_TYPE_UNSPEC:
        print_device(target->index);
        break;
    case BPF_MAP_TYPE_DEVMAP:
    case BPF_MAP_TYPE_DEVMAP_HASH:
        print_devices(target, decided);
        break;
    case BPF_MAP_TYPE_CPUMAP:
        print_cpu(target, decided);
        break;
    default:
        print_socket(target, decided);
    }
    json_close();
}

void redirects_print(void) {
    if (!follower) {
        json_null("targets");
        json_string("targets_missing", missing);
        return;
    }
    int fd = bpf_object__find_map_fd_by_name(follower, "decisions");
    struct redirect_target target, *last = NULL;
    json_open_array("targets");
    for (; !bpf_map_get_next_key(fd, last, &target); last = &target) {
        struct redirect_decisions decided;
        if (!bpf_map_lookup_elem(fd, &target, &decided))
            print_target(&target, &decided);
    }
    json_close();
    json_null("targets_missing");
}
