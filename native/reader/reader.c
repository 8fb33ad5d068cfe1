// SPDX-License-Identifier: Apache-2.0
// reader: answers readings of a host for as long as its input is open: one SSH command for a whole session,
// where each reading of a trial would take one of its own. Between two readings it sleeps. Each line of its
// input is one reading, its words in hexadecimal, so that they may hold anything:
//     file PATH             the file's contents, read here
//     run PROGRAM WORD...   what the command prints, in the C locale, with an empty standard input
//     settings DEVICE PATTERN...   what costs time and can change, of the machine and of a port: `settings.h`
// The answer is a line of JSON: exit code (128 + N after signal N), and both streams in hexadecimal.
#include "command_line.h"
#include "fail.h"
#include "json.h"
#include "settings.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { MOST_WORDS = 4096, PIECE = 1 << 16, MOST_BYTES = 1 << 25 };
enum { NOT_FOUND = 127, NOT_EXECUTABLE = 126, SIGNALLED = 128 }; // as a shell reports it

static const struct command_line LINE = {
    .usage = "",
    .about =
        "Reads one line per reading: `file PATH`, `run PROGRAM WORD...` or `settings DEVICE PATTERN...`, "
        "each word in hexadecimal. "
        "Prints exit code and both streams, in hexadecimal, as one JSON object per reading.",
};

struct bytes {
    char *at;
    size_t used, room;
};

struct answer {
    int exit_code;
    struct bytes output, error;
};

static void append(struct bytes *bytes, const char *piece, size_t length) {
    if (bytes->used + length > MOST_BYTES)
        fail("read", EFBIG, NULL, "more than %d bytes", MOST_BYTES);
    if (bytes->used + length > bytes->room) {
        bytes->room = 2 * (bytes->used + length);
        bytes->at = realloc(bytes->at, bytes->room);
        if (!bytes->at)
            fail("read", ENOMEM, NULL, "no memory for %zu bytes", bytes->room);
    }
    if (length)
        memcpy(bytes->at + bytes->used, piece, length);
    bytes->used += length;
}

// What can be read of it now; false at its end. `error` is the errno of a read that failed, else 0.
static bool taken(int fd, struct bytes *bytes, int *error) {
    static char piece[PIECE];
    ssize_t got = read(fd, piece, sizeof(piece));
    *error = got < 0 && errno != EINTR ? errno : 0;
    if (got > 0)
        append(bytes, piece, got);
    return got > 0 || (got < 0 && !*error);
}

static void refused(struct answer *answer, int exit_code, const char *name, int error) {
    char text[512];
    int length = snprintf(text, sizeof(text), "%s: %s", name, strerror(error));
    answer->exit_code = exit_code;
    append(&answer->error, text, length < (int)sizeof(text) ? length : (int)sizeof(text) - 1);
}

static void read_file(const char *path, struct answer *answer) {
    int error = 0, fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        refused(answer, 1, path, errno);
        return;
    }
    while (taken(fd, &answer->output, &error))
        ;
    close(fd);
    if (error)
        refused(answer, 1, path, error);
}

static void read_settings(const char *device, char *const *patterns, struct answer *answer) {
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);

    if (!out)
        fail("read", ENOMEM, NULL, "no memory for settings");
    print_settings(out, device, patterns);
    fclose(out);
    append(&answer->output, text, length);
    free(text);
}

// Both streams at the same time: a command that fills one pipe would wait for ever for the other's reader.
static void drain(int output, int error, struct answer *answer) {
    struct pollfd ends[] = {{.fd = output, .events = POLLIN}, {.fd = error, .events = POLLIN}};
    struct bytes *streams[] = {&answer->output, &answer->error};
    int ignored;

    while (ends[0].fd >= 0 || ends[1].fd >= 0) {
        if (poll(ends, 2, -1) < 0)
            continue;
        for (int i = 0; i < 2; i++)
            if (ends[i].fd >= 0 && ends[i].revents && !taken(ends[i].fd, streams[i], &ignored))
                ends[i].fd = -1;
    }
}

static int started(char **argv, int output, int error, pid_t *child) {
    posix_spawn_file_actions_t actions;
    int failed = posix_spawn_file_actions_init(&actions);
    failed = failed ?: posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    failed = failed ?: posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    failed = failed ?: posix_spawn_file_actions_adddup2(&actions, error, STDERR_FILENO);
    failed = failed ?: posix_spawnp(child, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return failed;
}

static int exit_code_of(pid_t child) {
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            fail("wait", errno, NULL, "process %d cannot be waited for", child);
    return WIFSIGNALED(status) ? SIGNALLED + WTERMSIG(status) : WEXITSTATUS(status);
}

static void run(char **argv, struct answer *answer) {
    int output[2], error[2];
    pid_t child;

    if (pipe2(output, O_CLOEXEC) || pipe2(error, O_CLOEXEC))
        fail("pipe", errno, NULL, "no pipe for a command's output");
    int failed = started(argv, output[1], error[1], &child);
    close(output[1]);
    close(error[1]);
    drain(output[0], error[0], answer);
    close(output[0]);
    close(error[0]);
    if (failed)
        refused(answer, failed == ENOENT ? NOT_FOUND : NOT_EXECUTABLE, argv[0], failed);
    else
        answer->exit_code = exit_code_of(child);
}

static void print_hex(const char *key, const struct bytes *bytes) {
    static const char DIGITS[] = "0123456789abcdef";
    char *text = malloc(2 * bytes->used + 1);
    if (!text)
        fail("print", ENOMEM, NULL, "no memory for an answer of %zu bytes", bytes->used);
    for (size_t i = 0; i < bytes->used; i++) {
        text[2 * i] = DIGITS[(unsigned char)bytes->at[i] >> 4];
        text[2 * i + 1] = DIGITS[bytes->at[i] & 15];
    }
    text[2 * bytes->used] = '\0';
    json_string(key, text);
    free(text);
}

static void print(struct answer *answer) {
    json_begin("answer");
    json_integer("exit_code", answer->exit_code);
    print_hex("output", &answer->output);
    print_hex("error", &answer->error);
    json_end();
}

static int digit(char letter) {
    return letter >= '0' && letter <= '9'   ? letter - '0'
           : letter >= 'a' && letter <= 'f' ? letter - 'a' + 10
                                            : -1;
}

// Decodes a word in its place; false where it is not hexadecimal.
static bool decode(char *word) {
    size_t length = strlen(word);
    for (size_t i = 0; i < length / 2; i++) {
        int high = digit(word[2 * i]), low = digit(word[2 * i + 1]);
        if (high < 0 || low < 0 || !(high | low)) // no argument of a process holds a zero byte
            return false;
        word[i] = (char)(high << 4 | low);
    }
    word[length / 2] = '\0';
    return length % 2 == 0;
}

// Splits the line in its place. An empty word stands between two blanks. Returns the number of words.
static int split(char *line, char **words) {
    int count = 0;
    for (char *word; (word = strsep(&line, " ")) != NULL;) {
        if (count == MOST_WORDS || (count > 0 && !decode(word)))
            fail("request", EINVAL, NULL, "word %d is one too many, or not hexadecimal", count);
        words[count++] = word;
    }
    words[count] = NULL;
    return count;
}

static void answer_line(char *line, struct answer *answer) {
    static char *words[MOST_WORDS + 1];
    int count = split(line, words);

    answer->exit_code = 0;
    answer->output.used = answer->error.used = 0;
    if (count == 2 && !strcmp(words[0], "file"))
        read_file(words[1], answer);
    else if (count >= 2 && !strcmp(words[0], "run"))
        run(words + 1, answer);
    else if (count >= 2 && !strcmp(words[0], "settings"))
        read_settings(words[1], words + 2, answer);
    else
        fail("request", EINVAL, NULL, "neither `file PATH`, `run PROGRAM` nor `settings DEVICE`: %s",
             words[0]);
    print(answer);
}

int main(int count, char **arguments) {
    command_line_read(&LINE, NULL, count, arguments);
    if (setenv("LC_ALL", "C", 1))
        fail("locale", errno, NULL, "no memory");
    struct answer answer = {0};
    char *line = NULL;
    size_t room = 0;
    for (ssize_t length; (length = getline(&line, &room, stdin)) > 0;) {
        line[length - (line[length - 1] == '\n')] = '\0';
        answer_line(line, &answer);
    }
    free(line);
    free(answer.output.at);
    free(answer.error.at);
    return !json_flush();
}
