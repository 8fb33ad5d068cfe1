// SPDX-License-Identifier: Apache-2.0
// xdpgen: sends test frames through XDP, receives what comes back, and prints JSON lines.
#include "burst.h"
#include "engine.h"
#include "fail.h"
#include "json.h"
#include "refusal.h"
#include "report.h"
#include "thread.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int wake_pipe[2]; // so that a signal just before poll() is not missed

static void on_signal(int signal) {
    (void)signal;
    interrupted = true;
    (void)!write(wake_pipe[1], "", 1);
}

static int install_signals(void) {
    struct sigaction action = {.sa_handler = on_signal}; // no SA_RESTART: a blocked write must end too

    if (pipe(wake_pipe))
        return failed("signals", errno, NULL, "no pipe for signals");
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    thread_interrupts_install();
    return 0;
}

static int run_list(struct session *session, unsigned *done) {
    const struct burst_list *list = &session->options.bursts;
    int error = 0;

    for (*done = 0; *done < list->count && !interrupted && !error; ++*done)
        error = burst_run(session, &list->bursts[*done]);
    return error;
}

// One line of stdin without its newline. Returns its length, or -1 at the end or on a signal.
static int read_line(char *line, size_t size) {
    struct pollfd waits[] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = wake_pipe[0], .events = POLLIN}};
    size_t length = 0;

    while (!interrupted && length + 1 < size) {
        if (poll(waits, 2, -1) < 0 || !waits[0].revents)
            continue;
        if (read(STDIN_FILENO, line + length, 1) != 1)
            return -1;
        if (line[length] == '\n') {
            line[length] = 0;
            return length;
        }
        length++;
    }
    return -1;
}

// `released` marks where what belongs together ends: `done` counts the bursts since then.
static int run_steps(struct session *session, unsigned *done) {
    static const char command[] = "burst ";
    struct burst_request request;
    char line[256];
    int error = 0;

    for (*done = 0; !error && read_line(line, sizeof(line)) >= 0;) {
        if (!strcmp(line, "release")) {
            report_end("released", *done);
            if (session->engine->release)
                session->engine->release();
            *done = 0;
            continue;
        }
        if (strncmp(line, command, strlen(command)) || !burst_parse(&request, line + strlen(command), ' '))
            return failed("command", EINVAL, NULL,
                          "expected `burst NAME SECONDS` (at most %d s) or `release`, got `%s`",
                          MAX_BURST_SECONDS, line);
        error = burst_run(session, &request);
        ++*done;
    }
    return error;
}

static int run(struct session *session, unsigned *done) {
    int error = install_signals();

    refusal_collect();
    error = error ?: session_open(session);
    if (error)
        return error;
    report_ready(session);
    return session->options.step ? run_steps(session, done) : run_list(session, done);
}

int main(int argc, char **argv) {
    static struct session session;
    unsigned done = 0;
    int error;

    options_parse(&session.options, argc, argv);
    error = run(&session, &done);
    session_close(&session);
    if (error)
        fail_print();
    else
        report_end("detached", done);
    return error || !json_flush();
}
