// SPDX-License-Identifier: Apache-2.0
// One JSON object a line on standard output, each written by one write(2), so that a kill never leaves half a
// line.
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct json {
    char text[65536];
    size_t used;
};

void json_begin(struct json *json, const char *type);
void json_string(struct json *json, const char *key, const char *value); // NULL becomes null
void json_integer(struct json *json, const char *key, long long value);
void json_bool(struct json *json, const char *key, bool value);
void json_null(struct json *json, const char *key);
void json_integers(struct json *json, const char *key, const unsigned int *values, size_t count);
void json_decimals(struct json *json, const char *key, const double *values, size_t count);
void json_list_begin(struct json *json, const char *key); // of objects, each between the next two calls
void json_item_begin(struct json *json);
void json_item_end(struct json *json);
void json_list_end(struct json *json);
void json_end(struct json *json); // closes the object and prints it
