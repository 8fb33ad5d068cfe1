// SPDX-License-Identifier: Apache-2.0
#include "options.h"
#include "command_line.h"
#include "globals.h"
#include "measure.h"
#include "program_types.h"
#include "targets.h"

#include <limits.h>
#include <stdio.h>
#include <sys/utsname.h>

#define MOST_LOG_BYTES (UINT_MAX >> 2) // the most that a kernel from 5.2 on takes

unsigned object_deadline_s;

struct options {
    unsigned long long budget_ms;
    unsigned loads, log_level, deadline_s, kernel_version, program_flags;
    bool watch;
    const char *logs;
    unsigned log_bytes;
};

static bool read_version(const struct option_row *row, void *target, const char *text) {
    unsigned major = 0, minor = 0, patch = 0;

    (void)row;
    if (sscanf(text, "%u.%u.%u", &major, &minor, &patch) < 2)
        return false;
    *(unsigned *)target = major << 16 | minor << 8 | (patch > 255 ? 255 : patch);
    return true;
}

static bool read_types(const struct option_row *row, void *target, const char *text) {
    const char *wrong = program_types_read(text);

    (void)target;
    if (wrong)
        command_line_refuse("--%s: %s: %s", row->name, text, wrong);
    return true;
}

static bool read_globals(const struct option_row *row, void *target, const char *text) {
    const char *wrong = globals_read(text);

    (void)target;
    if (wrong)
        command_line_refuse("--%s: %s: %s", row->name, text, wrong);
    return true;
}

static bool read_targets(const struct option_row *row, void *target, const char *text) {
    const char *wrong = targets_read(text);

    (void)target;
    if (wrong)
        command_line_refuse("--%s: %s: %s", row->name, text, wrong);
    return true;
}

#define AT(field) offsetof(struct options, field)

static const struct option_row ROWS[] = {
    {"loads", "N", "1", option_unsigned, AT(loads), 1, MOST_LOADS, "loads of each program"},
    {"budget-ms", "MS", "1000", option_count, AT(budget_ms), 0, 3600000,
     "no further load once those of a program have taken so long"},
    {"watch", NULL, NULL, option_flag, AT(watch), 0, 0,
     "one load each, counting memory and branches; such loads are not timed"},
    {"types", "FILE", NULL, read_types, 0, 0, 0,
     "lines of OBJECT-PATTERN SECTION-PATTERN TYPE, for sections that tell no program type"},
    {"globals", "FILE", NULL, read_globals, 0, 0, 0,
     "lines of OBJECT-PATTERN VARIABLE INTEGER: global variables to set before an object is loaded"},
    {"targets", "FILE", NULL, read_targets, 0, 0, 0,
     "lines of OBJECT-PATTERN SECTION-PATTERN TARGET-OBJECT PROGRAM FUNCTION: what programs attach to"},
    {"logs", "DIRECTORY", NULL, option_text, AT(logs), 0, 0,
     "one more load of each program, whose log of each step goes to NAME.log in it; where that is full, a "
     "further "
     "one, whose log's beginning goes to NAME.first.log (from Linux 6.4 on)"},
    {"log-bytes", "N", "1073741823", option_unsigned, AT(log_bytes), 4096, MOST_LOG_BYTES,
     "of such a log at most; also at most what nine tenths of the directory's free space hold"},
    {"log-level", "N", "4", option_unsigned, AT(log_level), 0, 15, "of the verifier; 4: statistics"},
    {"kern-version", "VERSION", NULL, read_version, AT(kernel_version), 0, 0,
     "such as 5.10.3, for kprobe programs on kernels that compare it (the running one)"},
    {"program-flags", "N", "0", option_unsigned, AT(program_flags), 0, 0xffff,
     "added to each program's own, such as 8 for BPF_F_TEST_STATE_FREQ"},
    {"deadline", "S", "60", option_unsigned, AT(deadline_s), 1, 86400, "seconds for one object"},
};

static const struct command_line LINE = {
    .usage = "[options] OBJECT...\n--run SECONDS BYTES COMMAND...",
    .about =
        "Hands every program of every BPF object to the kernel's verifier, attaches none, and prints a JSON "
        "line "
        "each.\n--run: runs another verifier under these limits and prints what it used as the last line.",
    .rows = ROWS,
    .row_count = sizeof(ROWS) / sizeof(ROWS[0]),
    .least_arguments = 1,
    .most_arguments = -1,
};

int options_read(int count, char **arguments) {
    struct options options = {0};
    struct utsname name;
    int first = command_line_read(&LINE, &options, count, arguments);

    if (!options.kernel_version && !uname(&name))
        read_version(NULL, &options.kernel_version, name.release);
    effort = (struct effort){
        .loads = options.loads,
        .budget_ns = 1000000 * options.budget_ms,
        .log_level = options.log_level,
        .kernel_version = options.kernel_version,
        .program_flags = options.program_flags,
        .watch = options.watch,
        .logs = options.logs,
        .log_bytes = options.log_bytes,
    };
    object_deadline_s = options.deadline_s;
    return first;
}
