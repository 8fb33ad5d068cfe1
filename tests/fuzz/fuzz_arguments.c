// SPDX-License-Identifier: Apache-2.0
// A tool's command line: words, each ended by a zero.
#include "options.h"
#include "refusing.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#define MOST_WORDS 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct options options;
    char *words[MOST_WORDS + 2] = {"tool"}, *text = malloc(size + 1);
    int count = 1;

    memcpy(text, data, size);
    text[size] = 0;
    for (char *word = text; word < text + size && count <= MOST_WORDS; word += strlen(word) + 1)
        words[count++] = word;
    optind = 0; // glibc begins anew
    if (!setjmp(refused))
        parse_options(&options, count, words);
    free(text);
    return 0;
}
