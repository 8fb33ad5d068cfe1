// SPDX-License-Identifier: Apache-2.0
// xdpload: loads one XDP or tc program, attaches it, and answers commands until standard input closes.
// Nothing stays attached without it, however it ends.
#include "attach.h"
#include "commands.h"
#include "fail.h"
#include "interface.h"
#include "json.h"
#include "options.h"
#include "program.h"
#include "records.h"
#include "redirects.h"
#include "refusal.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// Constant lines: a signal handler may print them.
static bool say_detached(void) {
    static const char done[] = "{\"type\":\"detached\"}\n";
    static const char stays[] = FAILURE_LINE(
        "detach", "the clsact qdisc may stay; if it has no filter of others (`tc filter show dev PORT "
                  "ingress`, then egress): `tc qdisc del dev PORT clsact`");
    bool gone = detach_program();
    ssize_t length = gone ? sizeof(done) - 1 : sizeof(stays) - 1;
    return write(STDOUT_FILENO, gone ? done : stays, length) == length && gone;
}

// Exits in the handler: a signal must end the program at once, at any point.
static void end_on_signal(int signal) {
    (void)signal;
    _exit(!say_detached());
}

static void catch_signals(void) {
    struct sigaction action = {.sa_handler = end_on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

static void serve(const struct program *program) {
    char line[8192];
    while (fgets(line, sizeof(line), stdin))
        run_command(program, line);
}

int main(int argc, char **argv) {
    struct options options;
    struct program program = {};
    int ifindex = 0;

    parse_options(&options, argc, argv);
    refusal_collect();
    catch_signals();
    bool attaches = options.mode != MODE_NONE && !options.share_maps;
    if (options.mode != MODE_NONE || options.device_bound)
        ifindex = interface_find(options.interface);
    if (attaches)
        refuse_if_taken(&options, ifindex);
    open_program(&program, &options);
    load_program(&program, &options, ifindex);
    if (options.mode != MODE_OFFLOAD && !options.share_maps) // their owner reads them
        records_read(program.object);
    if (options.count_actions)
        redirects_follow(&program, &options, ifindex); // before any answer: frames may follow it at once
    print_loaded(&program);
    if (attaches)
        attach_program(&program, &options, ifindex);
    serve(&program);
    bool told = json_flush(); // before the last line, which does not wait for it
    return !(say_detached() && told);
}
