// SPDX-License-Identifier: Apache-2.0
#include "rule_table.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#define SPACE " \t\r\n"

static size_t words_in(const char *form) {
    size_t count = 1;
    for (; *form; form++)
        count += *form == ' ';
    return count;
}

static const char *read_line(char *line, const char *form, const char *(*take)(char *const *)) {
    static char complaint[192];
    char *words[MOST_WORDS + 1], *rest = NULL;
    size_t count = 0;
    for (char *word = strtok_r(line, SPACE, &rest); word && count <= MOST_WORDS;
         word = strtok_r(NULL, SPACE, &rest))
        words[count++] = word;
    if (!count || words[0][0] == '#')
        return NULL;
    for (size_t i = 0; i < count; i++)
        if (strlen(words[i]) >= RULE_WORD)
            return "a word has more than 127 bytes";
    if (count == words_in(form))
        return take(words);
    snprintf(complaint, sizeof(complaint), "a rule is %s", form);
    return complaint;
}

const char *rule_table_read(const char *path, const char *form, const char *(*take)(char *const *words)) {
    static char complaint[256];
    char line[512];
    FILE *file = fopen(path, "r");
    if (!file)
        return strerror(errno);
    const char *wrong = NULL;
    for (int number = 1; !wrong && fgets(line, sizeof(line), file); number++) {
        bool whole = strchr(line, '\n') || strlen(line) < sizeof(line) - 1;
        wrong = whole ? read_line(line, form, take) : "it has more than 510 bytes";
        if (wrong)
            snprintf(complaint, sizeof(complaint), "line %d: %s", number, wrong);
    }
    if (!wrong && ferror(file)) // such as a directory, which fopen() opens
        snprintf(complaint, sizeof(complaint), "%s", wrong = strerror(errno));
    fclose(file);
    return wrong ? complaint : NULL;
}

bool rule_is_for(const char *pattern, const char *object_path) {
    const char *slash = strrchr(object_path, '/'); // the folder says nothing about the object
    return !fnmatch(pattern, slash ? slash + 1 : object_path, 0);
}
