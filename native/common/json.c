// SPDX-License-Identifier: Apache-2.0
#include "json.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_OPEN 8
#define HELD_BYTES (1u << 20)

static struct {
    char *bytes; // whole lines that are not written yet, then the one in the making
    size_t whole, used, space;
    char closing[MOST_OPEN]; // of what is open
    int open;
    bool separated; // a comma is due before the next value
    bool held;
} out;

static void give_up(const char *why) {
    fprintf(stderr, "%s: JSON: %s\n", program_invocation_short_name, why);
    abort();
}

static char *room_for(size_t bytes) {
    if (out.used + bytes > out.space) {
        out.space = 2 * (out.used + bytes);
        out.bytes = realloc(out.bytes, out.space);
        if (!out.bytes)
            give_up("no memory for a line");
    }
    return out.bytes + out.used;
}

static void append(const char *bytes, size_t count) {
    memcpy(room_for(count), bytes, count);
    out.used += count;
}

__attribute__((format(printf, 1, 2))) static void print(const char *format, ...) {
    char text[400]; // the longest double, 1.8e308, with some digits after its point
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= sizeof(text))
        give_up("a number is too long");
    append(text, length);
}

// How many bytes the UTF-8 sequence at `at` has, or 0 where none begins there (Unicode, table 3-7).
static size_t sequence(const unsigned char *at) {
    unsigned char least = 0x80, most = 0xbf;
    size_t length = at[0] < 0x80   ? 1
                    : at[0] < 0xc2 ? 0
                    : at[0] < 0xe0 ? 2
                    : at[0] < 0xf0 ? 3
                    : at[0] < 0xf5 ? 4
                                   : 0;

    if (at[0] == 0xe0)
        least = 0xa0;
    else if (at[0] == 0xed)
        most = 0x9f;
    else if (at[0] == 0xf0)
        least = 0x90;
    else if (at[0] == 0xf4)
        most = 0x8f;
    for (size_t i = 1; i < length; i++, least = 0x80, most = 0xbf)
        if (at[i] < least || at[i] > most)
            return 0;
    return length;
}

static void append_escaped(const unsigned char *text) {
    for (size_t length; *text; text += length) {
        length = sequence(text);
        if (!length) {
            print("\\\\x%02x", *text);
            length = 1;
        } else if (*text == '"' || *text == '\\') {
            print("\\%c", *text);
        } else if (*text < 0x20 || *text == 0x7f) {
            print(*text == '\n' ? "\\n" : "\\u%04x", *text);
        } else {
            append((const char *)text, length);
        }
    }
}

static void begin_value(const char *key) {
    if (out.separated)
        append(",", 1);
    if (key)
        print("\"%s\":", key);
    out.separated = true;
}

static void open_with(const char *key, char opening, char closing) {
    begin_value(key);
    if (out.open == MOST_OPEN)
        give_up("too much is open");
    append(&opening, 1);
    out.closing[out.open++] = closing;
    out.separated = false;
}

void json_begin(const char *type) {
    out.used = out.whole; // a line that was given up for this one is gone
    out.open = 0;
    out.separated = false;
    open_with(NULL, '{', '}');
    json_string("type", type);
}

void json_open_array(const char *key) { open_with(key, '[', ']'); }

void json_open_object(const char *key) { open_with(key, '{', '}'); }

void json_close(void) {
    append(&out.closing[--out.open], 1);
    out.separated = true;
}

void json_end(void) {
    while (out.open)
        json_close();
    append("\n", 1);
    out.whole = out.used;
    if (!out.held || out.whole >= HELD_BYTES)
        json_flush();
}

void json_null(const char *key) {
    begin_value(key);
    print("null");
}

void json_bool(const char *key, bool value) {
    begin_value(key);
    print(value ? "true" : "false");
}

void json_string(const char *key, const char *text) {
    if (!text) {
        json_null(key);
        return;
    }
    begin_value(key);
    append("\"", 1);
    append_escaped((const unsigned char *)text);
    append("\"", 1);
}

void json_integer(const char *key, long long value) {
    begin_value(key);
    print("%lld", value);
}

void json_count(const char *key, unsigned long long value) {
    begin_value(key);
    print("%llu", value);
}

void json_known(const char *key, long long value) {
    if (value < 0)
        json_null(key);
    else
        json_integer(key, value);
}

void json_number(const char *key, double value) {
    char text[32];

    if (!isfinite(value)) {
        json_null(key);
        return;
    }
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    begin_value(key);
    append(text, strlen(text));
}

void json_decimal(const char *key, double value, int digits) {
    if (!isfinite(value)) {
        json_null(key);
        return;
    }
    begin_value(key);
    print("%.*f", digits, value);
}

static void flush_at_exit(void) { json_flush(); }

void json_hold(void) {
    if (!out.held)
        atexit(flush_at_exit);
    out.held = true;
}

// What could not be written, because of a signal or because its reader has gone, stays for the next time.
bool json_flush(void) {
    size_t written = 0;

    while (written < out.whole) {
        ssize_t count = write(STDOUT_FILENO, out.bytes + written, out.whole - written);
        if (count < 0)
            break;
        written += count;
    }
    if (written)
        memmove(out.bytes, out.bytes + written, out.used - written);
    out.used -= written;
    out.whole -= written;
    return !out.whole;
}
