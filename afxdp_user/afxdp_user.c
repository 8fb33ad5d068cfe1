// SPDX-License-Identifier: Apache-2.0
// The AF_XDP application of the DUT: open → attach → forward until the input ends → detach → last counters.
#include "fail.h"
#include "forward.h"
#include "json.h"
#include "options.h"
#include "redirect.h"
#include "report.h"
#include "warnings.h"
#include "workload.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

struct application {
    struct options options;
    struct workload workload;
    struct redirect redirect;
    struct queue queues[MAX_QUEUES];
    struct worker workers[MAX_QUEUES];
    unsigned worker_count;
    int signals;
    int error_event;
    int stop_event;
    bool stopping;
};

static void prepare_process(struct application *application) {
    const struct rlimit unlimited = {RLIM_INFINITY, RLIM_INFINITY};
    sigset_t ending;
    setrlimit(RLIMIT_MEMLOCK, &unlimited); // older kernels count frames and maps against it
    collect_warnings();
    sigemptyset(&ending);
    sigaddset(&ending, SIGINT);
    sigaddset(&ending, SIGTERM);
    sigprocmask(SIG_BLOCK, &ending, NULL); // before the threads start, which inherit the mask
    signal(SIGPIPE, SIG_IGN);
    application->signals = signalfd(-1, &ending, SFD_CLOEXEC);
    application->error_event = eventfd(0, EFD_CLOEXEC);
    application->stop_event = eventfd(0, EFD_CLOEXEC);
}

// Returns the worker of a CPU, a new one if it has none.
static struct worker *worker_of(struct application *application, unsigned cpu) {
    for (unsigned i = 0; i < application->worker_count; i++)
        if (application->workers[i].cpu == cpu)
            return &application->workers[i];
    struct worker *worker = &application->workers[application->worker_count++];
    worker->cpu = cpu;
    worker->busy = application->options.busy;
    worker->stopping = &application->stopping;
    return worker;
}

static void open_queues(struct application *application) {
    for (unsigned i = 0; i < application->options.queues; i++) {
        struct queue *queue = &application->queues[i];
        queue->workload = &application->workload;
        queue->error_event = application->error_event;
        queue_open(queue, &application->options, i);
        redirect_add(&application->redirect, i, queue->socket.fd);
        worker_add(worker_of(application, queue->cpu), queue);
    }
}

// Returns why real-time priority was refused, or 0.
static int start_workers(struct application *application) {
    int refused = 0;
    for (unsigned i = 0; i < application->worker_count; i++) {
        int error =
            worker_start(&application->workers[i], application->stop_event, application->options.fifo);
        refused = error ? error : refused;
    }
    return refused;
}

static void check_queues(const struct application *application) {
    for (unsigned i = 0; i < application->options.queues; i++) {
        int error = queue_error(&application->queues[i]);
        if (error)
            fail("forward", error, NULL, "queue %u of %s stopped: %s", i, application->options.interface,
                 strerror(error));
    }
}

// Answers one line of input; returns false at its end.
static bool answer(struct application *application) {
    static char line[256];
    static size_t used;
    ssize_t count = read(STDIN_FILENO, line + used, sizeof(line) - used);
    if (count <= 0)
        return count < 0 && errno == EINTR;
    used += count;
    for (char *end; (end = memchr(line, '\n', used));) {
        *end = '\0';
        if (!strcmp(line, "stats"))
            report_stats(application->queues, application->options.queues, &application->redirect);
        else
            fail("command", EINVAL, NULL, "unknown command '%s'; the only command is stats", line);
        used -= end + 1 - line;
        memmove(line, end + 1, used);
    }
    if (used == sizeof(line))
        fail("command", EINVAL, NULL, "a command is longer than %zu bytes", sizeof(line));
    return true;
}

static void serve(struct application *application) {
    struct pollfd events[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                              {.fd = application->signals, .events = POLLIN},
                              {.fd = application->error_event, .events = POLLIN}};
    for (;;) {
        if (poll(events, 3, -1) < 0 && errno != EINTR)
            fail("poll", errno, NULL, "waiting for commands failed");
        check_queues(application); // before answering: the counters of a dead queue are not a result
        if (events[1].revents || (events[0].revents && !answer(application)))
            return;
    }
}

static void stop_workers(struct application *application) {
    __atomic_store_n(&application->stopping, true, __ATOMIC_RELEASE);
    eventfd_write(application->stop_event, 1);
    for (unsigned i = 0; i < application->worker_count; i++)
        worker_join(&application->workers[i]);
}

static void finish(struct application *application) {
    redirect_detach(&application->redirect);
    stop_workers(application);
    check_queues(application);
    report_stats(application->queues, application->options.queues, &application->redirect);
    for (unsigned i = 0; i < application->options.queues; i++)
        socket_close(&application->queues[i].socket);
    report_detached();
}

int main(int argc, char **argv) {
    static struct application application;
    parse_options(&application.options, argc, argv);
    const struct options *options = &application.options;

    prepare_process(&application);
    workload_open(&application.workload, options->workload, options->init);
    redirect_load(&application.redirect, options->interface, options->frags);
    open_queues(&application);
    int refused = start_workers(&application);
    redirect_attach(&application.redirect, options->interface, options->native);
    report_ready(application.queues, options->queues, &application.redirect, options->fifo, refused);
    serve(&application);
    finish(&application);
    return !json_flush();
}
