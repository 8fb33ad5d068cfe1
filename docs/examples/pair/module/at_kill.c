// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#include <asm/unistd.h>
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/timekeeping.h>
#include <linux/tracepoint.h>

#include "primes.h"

#define MOST 100

static u64 times[MOST];
static unsigned int taken;
static int result;
static struct tracepoint *sys_enter;

static void at_kill(void *data, struct pt_regs *regs, long id) {
    u64 begin;

    if (id != __NR_kill || taken >= MOST)
        return;
    begin = ktime_get_mono_fast_ns();
    WRITE_ONCE(result, count_primes());
    times[taken] = ktime_get_mono_fast_ns() - begin;
    taken++;
}

static int show(struct seq_file *file, void *data) {
    unsigned int i;

    for (i = 0; i < taken; i++)
        seq_printf(file, "%llu\n", times[i]);
    return 0;
}

static void choose(struct tracepoint *tracepoint, void *data) {
    if (!strcmp(tracepoint->name, "sys_enter"))
        sys_enter = tracepoint;
}

static int __init at_kill_init(void) {
    int error;

    for_each_kernel_tracepoint(choose, NULL);
    if (!sys_enter)
        return -ENOENT;
    if (!proc_create_single("at_kill", 0400, NULL, show))
        return -ENOMEM;
    error = tracepoint_probe_register(sys_enter, at_kill, NULL);
    if (error)
        remove_proc_entry("at_kill", NULL);
    return error;
}

static void __exit at_kill_exit(void) {
    tracepoint_probe_unregister(sys_enter, at_kill, NULL);
    tracepoint_synchronize_unregister();
    remove_proc_entry("at_kill", NULL);
}

module_init(at_kill_init);
module_exit(at_kill_exit);
MODULE_DESCRIPTION("xdplab's example of a user's own module");
MODULE_LICENSE("Dual MIT/GPL");
