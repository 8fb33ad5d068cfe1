// SPDX-License-Identifier: Apache-2.0
#include "thread.h"
#include "fail.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>

atomic_bool interrupted;

int cpus_choose(struct cpu_list *list, unsigned wanted) {
    cpu_set_t allowed;

    if (sched_getaffinity(0, sizeof(allowed), &allowed))
        return failed("cpus", errno, NULL, "the CPUs of this process cannot be read");
    for (unsigned i = 0; i < list->count; i++)
        if (list->cpus[i] >= CPU_SETSIZE || !CPU_ISSET(list->cpus[i], &allowed))
            return failed("cpus", EINVAL, NULL, "CPU %u is not there, or this process may not use it",
                          list->cpus[i]);
    if (list->count)
        return 0;
    for (unsigned cpu = 0; cpu < CPU_SETSIZE && list->count < wanted; cpu++)
        if (CPU_ISSET(cpu, &allowed))
            list->cpus[list->count++] = cpu;
    return 0;
}

int thread_pin(unsigned cpu) {
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return -pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

int thread_fifo(unsigned priority) {
    struct sched_param parameters = {.sched_priority = priority};

    return -pthread_setschedparam(pthread_self(), SCHED_FIFO, &parameters);
}

static void do_nothing(int signal) { (void)signal; }

void thread_interrupts_install(void) {
    struct sigaction action = {.sa_handler = do_nothing}; // no SA_RESTART: the call must end

    sigaction(SIGUSR1, &action, NULL);
}
