// SPDX-License-Identifier: Apache-2.0
#include "cgroup.h"
#include "known_load.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// How each version of control groups names what is needed. Version 2 charges 64 pages at a time and hands
// them out from there: below four such steps its peak tells too little.
static const struct layout {
    const char *mount_type, *option, *peak, *current;
    long long least_bytes;
    const char *too_little;
} LAYOUTS[] = {
    {"cgroup", "memory", "memory.kmem.max_usage_in_bytes", "memory.kmem.usage_in_bytes", 1,
     "not a page was charged"},
    {"cgroup2", "", "memory.peak", "memory.current", 1 << 20,
     "memory.peak counts in steps of 64 pages, and this load took less than four"},
};

static const struct layout *layout;
static char root[PATH_MAX];
static char home[PATH_MAX]; // cgroup.procs of the group the process came from
static char own[PATH_MAX];
static long long before;
static char reason[256];

static bool write_number(const char *path, long long value) {
    FILE *file = fopen(path, "w");
    bool good = file && fprintf(file, "%lld\n", value) > 0;
    return file && !fclose(file) && good;
}

static long long read_number(const char *folder, const char *name) {
    char path[PATH_MAX + 64];
    long long value = -1;
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    if (!file)
        return -1;
    if (fscanf(file, "%lld", &value) != 1)
        value = -1;
    fclose(file);
    return value;
}

// A line of /proc/self/mounts: device, folder, type, options.
static bool find_mount(const struct layout *wanted) {
    char folder[PATH_MAX], type[64], options[1024];
    bool found = false;
    FILE *mounts = fopen("/proc/self/mounts", "r");
    while (mounts && !found && fscanf(mounts, "%*s %4095s %63s %1023s %*d %*d", folder, type, options) == 3)
        found = !strcmp(type, wanted->mount_type) && strstr(options, wanted->option);
    if (mounts)
        fclose(mounts);
    if (found)
        snprintf(root, sizeof(root), "%s", folder);
    return found;
}

// A line of /proc/self/cgroup: number, controllers, path; version 2 has number 0 and no controllers.
static bool find_home(const struct layout *wanted) {
    char line[PATH_MAX], controllers[256] = "";
    bool found = false;
    FILE *groups = fopen("/proc/self/cgroup", "r");
    while (groups && !found && fgets(line, sizeof(line), groups)) {
        line[strcspn(line, "\n")] = '\0';
        char *first = strchr(line, ':'), *path = first ? strchr(first + 1, ':') : NULL;
        if (!path)
            continue;
        snprintf(controllers, sizeof(controllers), "%.*s", (int)(path - first - 1), first + 1);
        found = !strcmp(controllers, wanted->option);
        if (found)
            snprintf(home, sizeof(home), "%.2000s%.2000s", root, path + 1);
    }
    if (groups)
        fclose(groups);
    return found;
}

static void give_up(const char *words, int error) {
    snprintf(reason, sizeof(reason), "%s%s%s", words, error ? ": " : "", error ? strerror(error) : "");
    layout = NULL;
}

// Version 2: children get a controller only where their parent hands it on.
static void hand_on_memory(void) {
    char control[PATH_MAX + 32];
    snprintf(control, sizeof(control), "%s/cgroup.subtree_control", root);
    int file = open(control, O_WRONLY | O_CLOEXEC);
    if (file < 0 || write(file, "+memory", 7) < 0)
        give_up("the memory controller is not to be had", errno);
    if (file >= 0)
        close(file);
}

static bool move_to(const char *folder) {
    char path[PATH_MAX + 16];
    snprintf(path, sizeof(path), "%s/cgroup.procs", folder);
    return write_number(path, getpid());
}

void cgroup_enter(void) {
    own[0] = '\0';
    if (!layout)
        return;
    snprintf(own, sizeof(own), "%.4000s/bpfverify-%d", root, getpid());
    if (mkdir(own, 0755) || !move_to(own)) {
        snprintf(reason, sizeof(reason), "no memory control group can be made: %s", strerror(errno));
        rmdir(own);
        own[0] = '\0';
        return;
    }
    before = read_number(own, layout->current);
}

// Ends the group; returns the most bytes charged in it, or -1 where the kernel keeps no peak.
static long long leave(void) {
    long long peak = read_number(own, layout->peak);
    if (!move_to(home))
        move_to(root);
    rmdir(own);
    return peak < 0 || before < 0 ? -1 : peak - before;
}

// Until 6.17 the memory of a program is charged, and that of the verifier's work is not. Distributions may
// carry that change in older kernels, so it is found out by a load that needs much memory.
static void try_charging(void) {
    cgroup_enter();
    if (!own[0])
        return;
    bool loaded = known_load();
    long long charged = leave();
    if (charged < 0)
        give_up("this kernel's control groups keep no peak", 0);
    else if (loaded && charged < KNOWN_LOAD_BYTES)
        give_up("this kernel charges the verifier's memory to no control group", 0);
}

void cgroup_setup(void) {
    for (size_t i = 0; !layout && i < sizeof(LAYOUTS) / sizeof(LAYOUTS[0]); i++)
        if (find_mount(&LAYOUTS[i]) && find_home(&LAYOUTS[i]))
            layout = &LAYOUTS[i];
    if (!layout)
        give_up("no memory control group is mounted", 0);
    else if (layout->option[0] == '\0')
        hand_on_memory();
    try_charging();
}

const char *cgroup_leave(long long *peak_bytes) {
    *peak_bytes = -1;
    if (!own[0])
        return reason;
    long long charged = leave();
    if (charged < layout->least_bytes)
        return layout->too_little;
    *peak_bytes = charged;
    return NULL;
}
