// SPDX-License-Identifier: Apache-2.0
#include "workers.h"
#include "clock.h"
#include "fail.h"
#include "thread.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

struct slot {
    struct worker worker;
    pthread_t thread;
    unsigned fifo;
    uint64_t cpu_ns; // CPU time it had used when it ended
    void (*work)(struct worker *worker);
};

static struct slot slots[MAX_STREAMS];
static unsigned count;
static atomic_bool stopping;

bool workers_stopping(void) { return stopping; }

static void set_up(struct slot *slot) {
    struct worker *worker = &slot->worker;

    worker->error = thread_pin(worker->cpu);
    worker->what = "cannot be pinned to its CPU";
    if (!worker->error && slot->fifo) {
        worker->error = thread_fifo(slot->fifo);
        worker->what = "does not get real-time priority";
    }
}

static void *run(void *argument) {
    struct slot *slot = argument;

    set_up(slot);
    if (!slot->worker.error)
        slot->work(&slot->worker);
    slot->cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    slot->worker.done = true;
    return NULL;
}

// SIGINT and SIGTERM are for the controlling thread.
static int start_one(struct slot *slot) {
    sigset_t blocked, before;
    int error;

    sigemptyset(&blocked);
    sigaddset(&blocked, SIGINT);
    sigaddset(&blocked, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    error = pthread_create(&slot->thread, NULL, run, slot);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error ? failed("threads", error, NULL, "a sending thread cannot be started") : 0;
}

int workers_start(const struct session *session, void (*work)(struct worker *worker)) {
    const struct cpu_list *cpus = &session->options.cpus;

    stopping = false;
    for (count = 0; count < cpus->count; count++) {
        struct slot *slot = &slots[count];
        memset(slot, 0, sizeof(*slot));
        slot->worker.index = count;
        slot->worker.cpu = cpus->cpus[count];
        slot->fifo = session->fifo ? session->options.fifo : 0;
        slot->work = work;
        int error = start_one(slot);
        if (error)
            return error;
    }
    return 0;
}

int workers_check(void) {
    for (unsigned i = 0; i < count; i++)
        if (slots[i].worker.error)
            return failed("send", slots[i].worker.error, NULL, "the sender on CPU %u %s: %s",
                          slots[i].worker.cpu, slots[i].worker.what, strerror(-slots[i].worker.error));
    return 0;
}

uint64_t workers_cpu_ns(void) {
    uint64_t sum = 0;
    clockid_t clock;

    for (unsigned i = 0; i < count; i++)
        if (!slots[i].worker.done && !pthread_getcpuclockid(slots[i].thread, &clock))
            sum += clock_ns(clock) ?: slots[i].cpu_ns; // it may end just now
        else
            sum += slots[i].cpu_ns;
    return sum;
}

// Again and again: a signal that comes just before the system call would be lost.
static void interrupt(struct slot *slot) {
    while (!slot->worker.done) {
        pthread_kill(slot->thread, SIGUSR1);
        sleep_until_ns(now_ns() + NS_PER_MS / 4);
    }
    pthread_join(slot->thread, NULL);
}

int workers_stop(void) {
    int error;

    stopping = true;
    for (unsigned i = 0; i < count; i++)
        interrupt(&slots[i]);
    error = workers_check();
    count = 0;
    return error;
}
