// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// The benchmarks as a kernel module. Each is a folder /proc/xdplab_microbench/NAME with two files: `state`
// takes the working set's first contents, `call` takes an input (a struct bench_record), runs once, and gives
// the record.
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/uaccess.h>
#include <linux/version.h>

#include "module.h"

#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 17, 0)
#define pde_data PDE_DATA
#endif

#define BENCHMARK(name) extern const struct benchmark benchmark_##name;
#include "list.h"
#undef BENCHMARK

// A benchmark with what it works on.
struct bench {
    const struct benchmark *benchmark;
    struct bench_record record;
    void *set;
    __u8 frame[FRAME_BYTES];
};

#define BENCHMARK(name) {.benchmark = &benchmark_##name},
static struct bench benches[] = {
#include "list.h"
};
#undef BENCHMARK

static struct proc_dir_entry *folder;

static ssize_t state_write(struct file *file, const char __user *from, size_t count, loff_t *at) {
    struct bench *bench = pde_data(file_inode(file));

    return simple_write_to_buffer(bench->set, bench->benchmark->bytes, at, from, count);
}

// As BPF_PROG_TEST_RUN does, the frame is written right before the call, which stays on its CPU.
static ssize_t call_write(struct file *file, const char __user *from, size_t count, loff_t *at) {
    struct bench *bench = pde_data(file_inode(file));
    int i;

    if (count != sizeof(bench->record))
        return -EINVAL;
    if (copy_from_user(&bench->record, from, count))
        return -EFAULT;
    for (i = 0; i < FRAME_BYTES; i++)
        bench->frame[i] = i;
    preempt_disable();
    bench->benchmark->run(&bench->record, bench->set, bench->frame);
    preempt_enable();
    return count;
}

static ssize_t call_read(struct file *file, char __user *to, size_t count, loff_t *at) {
    struct bench *bench = pde_data(file_inode(file));

    return simple_read_from_buffer(to, count, at, &bench->record, sizeof(bench->record));
}

static const struct proc_ops state_ops = {.proc_write = state_write};
static const struct proc_ops call_ops = {.proc_write = call_write, .proc_read = call_read};

static int add(struct bench *bench) {
    struct proc_dir_entry *own = proc_mkdir(bench->benchmark->name, folder);

    bench->set = kvzalloc(bench->benchmark->bytes, GFP_KERNEL); // as the memory of a BPF map is had
    if (!own || !bench->set || !proc_create_data("state", 0200, own, &state_ops, bench) ||
        !proc_create_data("call", 0600, own, &call_ops, bench))
        return -ENOMEM;
    return 0;
}

static void remove_all(void) {
    int i;

    proc_remove(folder);
    for (i = 0; i < ARRAY_SIZE(benches); i++)
        kvfree(benches[i].set);
}

static int __init microbench_init(void) {
    int i, error = 0;

    folder = proc_mkdir("xdplab_microbench", NULL);
    if (!folder)
        return -ENOMEM;
    for (i = 0; i < ARRAY_SIZE(benches) && !error; i++)
        error = add(&benches[i]);
    if (error)
        remove_all();
    return error;
}

module_init(microbench_init);
module_exit(remove_all);
MODULE_DESCRIPTION("xdplab's micro-benchmarks");
MODULE_LICENSE("Dual MIT/GPL");
