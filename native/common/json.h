// SPDX-License-Identifier: Apache-2.0
// JSON objects on standard output, one per line.
//
// A line is whole or not there: it grows to any length and leaves by one write(2) (several where the reader's
// pipe is full). Strings are written as UTF-8: valid sequences as they are; a byte that is part of none as
// the four characters \xHH (its backslash escaped, as JSON wants), as Python's decoder does with
// errors="backslashreplace"; quotes, backslashes, control characters and DEL by JSON's own escapes.
//
// Keys are plain ASCII names of ours. A key of NULL is an element of an array.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void json_begin(
    const char *type); // opens the line's object, {"type":"…"; a line that is still open is dropped
void json_end(void);   // closes and prints it
void json_null(const char *key);
void json_bool(const char *key, bool value);
void json_string(const char *key, const char *text); // null for NULL
void json_integer(const char *key, long long value);
void json_count(const char *key, unsigned long long value);
void json_known(const char *key, long long value); // null below 0
void json_number(const char *key, double value); // the shortest that reads back the same; null if not finite
void json_decimal(const char *key, double value, int digits); // with so many digits after the point

// An array or an object inside; open ones may nest eight deep.
void json_open_array(const char *key);
void json_open_object(const char *key);
void json_close(void);

// From here on lines are written together: after each MiB, and when the process ends by exit(). Otherwise a
// reader would run during the measurement.
void json_hold(void);

// Writes the buffered lines. Returns false if a line could not be written.
bool json_flush(void);
