// SPDX-License-Identifier: Apache-2.0
// Times whole processes as a shell starts them, from before the start to the end: one that does nothing, or
// one that inserts a program and one that removes it.
#include "bench.h"
#include "clock.h"
#include "command_line.h"
#include "fail.h"
#include "json.h"
#include "network.h"
#include "refusal.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define THEN "then"

extern char **environ;

// `own_ns` is the CPU time of the process, without waiting for its libraries to be read.
struct spent {
    long long ns, own_ns;
};

static struct { struct spent run, then; } cycles[MOST_REPETITIONS];

static long long ns_of(const struct timeval *time) {
    return time->tv_sec * 1000000000LL + time->tv_usec * 1000LL;
}

static int status_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

// The output of the process would mix with the lines of this program.
static void mute(posix_spawn_file_actions_t *actions) {
    posix_spawn_file_actions_init(actions);
    posix_spawn_file_actions_addopen(actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
}

static struct spent run_process(const char *path, char *const *words) {
    posix_spawn_file_actions_t actions;
    struct rusage used;
    pid_t child;
    int status = 0;
    mute(&actions);
    long long start = now_ns();
    int error = posix_spawn(&child, path, &actions, NULL, words, environ);
    if (error || wait4(child, &status, 0, &used) < 0)
        fail("process", error ? error : errno, NULL, "cannot start %s", words[0]);
    long long end = now_ns();
    posix_spawn_file_actions_destroy(&actions);
    if (status)
        fail("process", 0, NULL, "%s ended with exit code %d", words[0], status_of(status));
    return (struct spent){end - start, ns_of(&used.ru_utime) + ns_of(&used.ru_stime)};
}

void start_bench(void) {
    char *const words[] = {"loadbench", "nothing", NULL};
    for (unsigned rank = 0; bench_next(rank); rank++) {
        struct spent spent = run_process("/proc/self/exe", words);
        json_begin("start");
        json_known("rank", rank);
        json_known("start_ns", spent.ns);
        json_known("own_ns", spent.own_ns);
        json_end();
    }
}

// Ends `words` at THEN and returns the words after it; NULL if there is no THEN.
static char **cut_at_then(char **words) {
    for (; *words; words++)
        if (!strcmp(*words, THEN)) {
            *words = NULL;
            return words + 1;
        }
    return NULL;
}

static void print_spent(const char *wall, const char *own, const struct spent *spent) {
    json_known(wall, spent->ns);
    json_known(own, spent->own_ns);
}

// Gives this process a BPF file system of its own, so that a killed command leaves no pinned program behind.
static void mount_own_bpffs(void) {
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
        fail("mount", errno, NULL, "cannot make a mount namespace");
    // If this fails, a command that pins a program fails with its own message; others need no BPF file
    // system.
    mount("xdplab", "/sys/fs/bpf", "bpf", 0, NULL);
}

void process_bench(char **words) {
    const struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_MEMLOCK, &all); // kernels before 5.11 count maps and programs against it
    char **then = cut_at_then(words);
    if (!words[0] || (then && !then[0]))
        command_line_refuse("process: a command is missing");
    mount_own_bpffs();
    network_make();
    unsigned done = 0;
    for (; bench_next(done); done++) {
        cycles[done].run = run_process(words[0], words);
        if (then)
            cycles[done].then = run_process(then[0], then);
    }
    for (unsigned rank = 0; rank < done; rank++) {
        json_begin("cycle");
        json_known("rank", rank);
        print_spent("run_ns", "run_own_ns", &cycles[rank].run);
        if (then)
            print_spent("then_ns", "then_own_ns", &cycles[rank].then);
        json_end();
    }
}

void load_once(const char *path) {
    struct bpf_object *object = bpf_object__open_file(path, NULL);
    if (!object)
        fail("open", errno, refusal_words(), "libbpf cannot open the object");
    int error = bpf_object__load(object);
    if (error)
        fail("load", -error, refusal_words(), "%s is refused: %s", path, strerror(-error));
    bpf_object__close(object);
}
