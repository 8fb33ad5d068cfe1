// SPDX-License-Identifier: Apache-2.0
// One JSON object a line on standard output, each written by one write(2).
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct json {
    FILE *stream;
    char *text;
    size_t size;
};

void json_begin(struct json *json, const char *type);
void json_string(struct json *json, const char *key, const char *value); // NULL becomes null
void json_integer(struct json *json, const char *key, long long value);
void json_known(struct json *json, const char *key, long long value); // negative becomes null
void json_hex(struct json *json, const char *key, unsigned long long value);
// Those below zero are null.
void json_integers(struct json *json, const char *key, const long long *values, size_t count);
void json_end(struct json *json); // closes the object and prints it
