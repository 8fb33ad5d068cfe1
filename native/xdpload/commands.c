// SPDX-License-Identifier: Apache-2.0
#include "commands.h"
#include "actions.h"
#include "alternate.h"
#include "attach.h"
#include "entries.h"
#include "fail.h"
#include "interface.h"
#include "json.h"
#include "records.h"
#include "redirects.h"
#include "tables.h"
#include "testrun.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void fill(const struct program *program, char *arguments) {
    (void)arguments;
    if (!fill_tables(program, &program->options->map) || !fill_entries(program, &program->options->entries))
        return;
    json_begin("filled");
    json_end();
}

static void decided(const struct program *program, char *arguments) {
    unsigned long long sums[ACTIONS];
    (void)program;
    (void)arguments;
    int error = actions_read(sums);
    if (error) {
        complain("decided", -error,
                 "what the program decides is not counted: it was loaded without --count-actions");
        return;
    }
    json_begin("decided");
    for (int action = 0; action < ACTIONS; action++)
        json_integer(action_names[action], sums[action]);
    redirects_print();
    json_end();
}

static void attach(const struct program *program, char *arguments) {
    const struct options *options = program->options;
    (void)arguments;
    if (attached_interface() || options->mode == MODE_NONE) {
        complain("attach", EINVAL, "the program is attached already, or was loaded without an interface");
        return;
    }
    attach_program(program, options, interface_find(options->interface));
}

static void exchange(const struct program *program, char *arguments) {
    unsigned id = strtoul(arguments, NULL, 10);
    (void)program;
    if (!attached_interface()) {
        complain("exchange", EINVAL, "no program is attached whose place another could take");
        return;
    }
    int fd = bpf_prog_get_fd_by_id(id);
    int error = fd < 0 ? -errno : exchange_program(fd);
    if (fd >= 0)
        close(fd);
    if (error) {
        complain("exchange", -error, "program %u cannot take the place of the attached one: %s", id,
                 error_words(-error));
        return;
    }
    json_begin("exchanged");
    json_integer("program_id", id);
    json_end();
}

static const struct {
    const char *name;
    void (*run)(const struct program *program, char *arguments);
} commands[] = {
    {"testrun", testrun},     {"frames", frames},
    {"outcomes", outcomes},   {"fresh", fresh},
    {"count", count},         {"reset", reset},
    {"dump", dump},           {"runstats", runstats},
    {"bpf_stats", bpf_stats}, {"stats_cost", stats_cost},
    {"decided", decided},     {"records", records},
    {"alternate", alternate}, {"fill", fill},
    {"exchange", exchange},   {"attach", attach},
    {"attached", attached},
};

void run_command(const struct program *program, char *line) {
    line[strcspn(line, "\r\n")] = '\0';
    size_t length = strcspn(line, " ");
    char *arguments = line + length + (line[length] == ' ');
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (strlen(commands[i].name) == length && !strncmp(commands[i].name, line, length)) {
            commands[i].run(program, arguments);
            return;
        }
    }
    complain("command", EINVAL, "there is no command %s", line);
}
