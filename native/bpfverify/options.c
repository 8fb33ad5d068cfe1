// SPDX-License-Identifier: Apache-2.0
#include "options.h"
#include "measure.h"
#include "program_types.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#define USAGE_EXIT 2

unsigned int object_deadline_s = 60;

static const char USAGE[] =
    "usage: bpfverify [OPTION]... OBJECT...\n"
    "Hands every program of every BPF object to the kernel's verifier, attaches none, and prints a JSON line "
    "each.\n"
    "  --loads N          loads of each program (default 1)\n"
    "  --budget-ms MS     no further load once those of a program have taken so long (default 1000)\n"
    "  --watch            one load each, counting memory and branches; such loads are not timed\n"
    "  --types FILE       lines of OBJECT-PATTERN SECTION-PATTERN TYPE, for sections that tell no program "
    "type\n"
    "  --log-level N      of the verifier (default 4: statistics)\n"
    "  --kern-version V   such as 5.10.3, for kprobe programs on kernels that compare it (default: the "
    "running one)\n"
    "  --deadline S       seconds for one object (default 60)\n"
    "or:    bpfverify --run SECONDS BYTES COMMAND...\n"
    "Runs another verifier under these limits and prints what it used as the last line.\n";

__attribute__((noreturn, format(printf, 1, 2))) static void refuse(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("bpfverify: ", stderr);
    vfprintf(stderr, format, arguments);
    fputs("\n", stderr);
    va_end(arguments);
    exit(USAGE_EXIT);
}

static long number(const char *option, const char *text, long least, long most) {
    char *end;
    long value = strtol(text, &end, 10);
    if (*end || end == text || value < least || value > most)
        refuse("--%s: %s is not a number from %ld to %ld", option, text, least, most);
    return value;
}

static unsigned int version_code(const char *text) {
    unsigned int major = 0, minor = 0, patch = 0;
    if (sscanf(text, "%u.%u.%u", &major, &minor, &patch) < 2)
        refuse("--kern-version: %s is not a version such as 5.10.3", text);
    return major << 16 | minor << 8 | (patch > 255 ? 255 : patch);
}

static unsigned int running_version(void) {
    struct utsname name;
    return uname(&name) ? 0 : version_code(name.release);
}

static void add_types(const char *path) {
    const char *wrong = program_types_read(path);
    if (wrong)
        refuse("--types: %s: %s", path, wrong);
}

static void apply(const char *option, const char *value) {
    if (!strcmp(option, "loads"))
        effort.loads = number(option, value, 1, MOST_LOADS);
    else if (!strcmp(option, "budget-ms"))
        effort.budget_ns = 1000000LL * number(option, value, 0, 3600000);
    else if (!strcmp(option, "watch"))
        effort.watch = true;
    else if (!strcmp(option, "types"))
        add_types(value);
    else if (!strcmp(option, "log-level"))
        effort.log_level = number(option, value, 0, 15);
    else if (!strcmp(option, "kern-version"))
        effort.kernel_version = version_code(value);
    else if (!strcmp(option, "deadline"))
        object_deadline_s = number(option, value, 1, 86400);
}

int options_read(int count, char **arguments) {
    static const struct option OPTIONS[] = {
        {"loads", required_argument, NULL, 1},
        {"budget-ms", required_argument, NULL, 1},
        {"watch", no_argument, NULL, 1},
        {"types", required_argument, NULL, 1},
        {"log-level", required_argument, NULL, 1},
        {"kern-version", required_argument, NULL, 1},
        {"deadline", required_argument, NULL, 1},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int found, index = 0;
    effort.kernel_version = running_version();
    while ((found = getopt_long(count, arguments, "h", OPTIONS, &index)) != -1) {
        if (found == 'h') {
            fputs(USAGE, stdout);
            exit(0);
        }
        if (found != 1)
            exit(USAGE_EXIT);
        apply(OPTIONS[index].name, optarg);
    }
    if (optind == count)
        refuse("name an object (--help tells more)");
    return optind;
}
