// SPDX-License-Identifier: Apache-2.0
// sampler DEVICE SECONDS: notes the CPUs' ticks and the device's packets every SECONDS, from the first line
// of its standard input to the end of that input, then prints the notes. Within the time it starts no process
// and writes nothing: neither a command nor an answer travels while traffic runs, and a note costs the DUT
// some microseconds. A note is the text that the kernel gives: the line of /proc/uptime, rx_packets,
// tx_packets, and /proc/stat's line of each CPU.
#include "clock.h"
#include "command_line.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_STAT_BYTES = 1 << 20, FIRST_BYTES = 1 << 20 };

static const struct command_line LINE = {
    .usage = "DEVICE SECONDS",
    .about =
        "Takes the first note at the first line of its input, and echoes that line; prints all notes when "
        "the input ends.",
    .least_arguments = 2,
    .most_arguments = 2,
};

static const char *const COUNTERS[] = {"rx_packets", "tx_packets"};

static struct {
    char *text;
    size_t used, room;
} notes;

static char stat_text[MOST_STAT_BYTES];

// Says on standard error what is wrong: that is what its caller shows.
__attribute__((noreturn, format(printf, 1, 2))) static void refuse(const char *format, ...) {
    va_list values;
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fputc('\n', stderr);
    exit(1);
}

static int opened(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        refuse("%s: %s", path, strerror(errno));
    return fd;
}

static int counter_of(const char *device, const char *counter) {
    char path[PATH_MAX];
    int length = snprintf(path, sizeof(path), "/sys/class/net/%s/statistics/%s", device, counter);
    int fd = length < (int)sizeof(path) && !strchr(device, '/') ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        refuse("no network device %s", device);
    return fd;
}

static void note(const char *text, size_t length) {
    if (notes.used + length > notes.room) {
        size_t room = notes.room ? 2 * notes.room : FIRST_BYTES;
        char *larger = realloc(notes.text, room);
        if (!larger)
            refuse("no memory for more than %zu bytes of notes", notes.room);
        notes.text = larger;
        notes.room = room;
    }
    memcpy(notes.text + notes.used, text, length);
    notes.used += length;
}

// The whole of a small file of the kernel's; 0 where it cannot be read now.
static size_t contents(int fd, char *text, size_t room) {
    size_t length = 0;
    ssize_t got;
    while (length < room && (got = pread(fd, text + length, room - length, length)) > 0)
        length += got;
    return length;
}

static void note_line(int fd) {
    char text[128];
    size_t length = contents(fd, text, sizeof(text));
    if (!length || text[length - 1] != '\n')
        refuse("a counter cannot be read any more: the device is gone");
    note(text, length);
}

// The lines of single CPUs follow the sum of all, and stand together at the beginning.
static void note_cpus(int fd) {
    size_t length = contents(fd, stat_text, sizeof(stat_text) - 1);
    stat_text[length] = '\0';
    for (char *line = stat_text, *end; (end = strchr(line, '\n')) && !strncmp(line, "cpu", 3); line = end + 1)
        if (isdigit((unsigned char)line[3]))
            note(line, end + 1 - line);
}

// The first line of the input, which says that notes are wanted; 0 where the input ends before.
static size_t first_line(char *line, size_t room) {
    size_t length = 0;
    while (length < room && read(STDIN_FILENO, line + length, 1) == 1)
        if (line[length++] == '\n')
            return length;
    return 0;
}

static bool input_ended(void) {
    char ignored[256];
    ssize_t got = read(STDIN_FILENO, ignored, sizeof(ignored));
    return got == 0 || (got < 0 && errno != EINTR);
}

static void note_all(int uptime, const int counters[2], int stat) {
    note_line(uptime);
    note_line(counters[0]);
    note_line(counters[1]);
    note_cpus(stat);
}

static void print_notes(void) {
    for (size_t done = 0; done < notes.used;) {
        ssize_t put = write(STDOUT_FILENO, notes.text + done, notes.used - done);
        if (put < 0 && errno != EINTR)
            exit(1);
        done += put > 0 ? put : 0;
    }
}

static int64_t period_ns(const char *text) {
    char *end;
    double seconds = strtod(text, &end);
    if (*text == '\0' || *end != '\0' || !(seconds >= 0.001 && seconds <= 3600))
        command_line_refuse("%s is not a time between 0.001 and 3600 s", text);
    return seconds * 1e9;
}

int main(int count, char **arguments) {
    char **words = arguments + command_line_read(&LINE, NULL, count, arguments);
    int64_t period = period_ns(words[1]);
    int uptime = opened("/proc/uptime"), stat = opened("/proc/stat");
    int counters[] = {counter_of(words[0], COUNTERS[0]), counter_of(words[0], COUNTERS[1])};
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    char line[256];
    size_t length = first_line(line, sizeof(line));

    if (length == 0)
        return 0;
    int64_t next = clock_ns(CLOCK_MONOTONIC) + period;
    note_all(uptime, counters, stat);
    if (write(STDOUT_FILENO, line, length) != (ssize_t)length)
        return 1;
    for (;;) {
        int64_t now = clock_ns(CLOCK_MONOTONIC);
        if (now >= next) {
            note_all(uptime, counters, stat);
            next += (1 + (now - next) / period) * period; // what was missed is not made up for
            continue;
        }
        struct timespec left = {.tv_sec = (next - now) / 1000000000, .tv_nsec = (next - now) % 1000000000};
        if (ppoll(&input, 1, &left, NULL) > 0 && input_ended())
            break;
    }
    print_notes();
    return 0;
}
