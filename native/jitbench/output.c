// SPDX-License-Identifier: Apache-2.0
#include "output.h"
#include "json.h"

#include <string.h>

static void print_rounds(const struct subject *subject, const struct rounds *rounds) {
    json_integer("times", rounds->times);
    json_open_array("ns");
    for (long i = 0; !subject->failed && i < rounds->rounds; i++)
        json_integer(NULL, subject->ns[i]);
    json_close();
}

// The verifier's last line but one has its complaint; the last one has its statistics.
static void print_failure(const struct subject *subject) {
    json_string("failed", subject->failed);
    json_string("error", subject->failed && subject->error ? strerror(subject->error) : NULL);
    json_string("words", subject->failed && *subject->words ? subject->words : NULL);
}

void print_kernel(int compiles) {
    json_begin("kernel");
    json_bool("compiles", compiles);
    json_end();
}

void print_subject(const struct subject *subject, const struct rounds *rounds) {
    json_begin("subject");
    json_string("name", subject->name);
    json_integer("insns", subject->insns);
    json_integer("verdict", subject->verdict);
    json_known("xlated_bytes", subject->xlated);
    json_known("jited_bytes", subject->jited);
    json_known("passed", subject->passed);
    json_string("policy_requested", subject->policy_wanted);
    json_string("policy", subject->policy);
    print_rounds(subject, rounds);
    print_failure(subject);
    json_end();
}
