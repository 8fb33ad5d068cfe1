// SPDX-License-Identifier: Apache-2.0
#include "json.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

// Room kept for what closes the line.
#define RESERVE 4

__attribute__((format(printf, 2, 3))) static void append(struct json *json, const char *format, ...) {
    size_t room = sizeof(json->text) - RESERVE - json->used;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(json->text + json->used, room, format, arguments);
    va_end(arguments);
    if (length > 0 && (size_t)length < room)
        json->used += length;
}

static void append_escaped(struct json *json, const char *value) {
    for (const unsigned char *at = (const unsigned char *)value; *at; at++) {
        if (*at == '"' || *at == '\\')
            append(json, "\\%c", *at);
        else if (*at == '\n')
            append(json, "\\n");
        else if (*at < 0x20)
            append(json, "\\u%04x", *at);
        else
            append(json, "%c", *at);
    }
}

// A comma before everything but the first of a list or of an object.
static const char *comma(const struct json *json) {
    char last = json->text[json->used - 1];
    return last == '[' || last == '{' ? "" : ",";
}

static void append_key(struct json *json, const char *key) { append(json, "%s\"%s\":", comma(json), key); }

void json_begin(struct json *json, const char *type) {
    json->used = 0;
    append(json, "{\"type\":\"%s\"", type);
}

void json_string(struct json *json, const char *key, const char *value) {
    if (!value) {
        json_null(json, key);
        return;
    }
    append_key(json, key);
    append(json, "\"");
    append_escaped(json, value);
    append(json, "\"");
}

void json_integer(struct json *json, const char *key, long long value) {
    append_key(json, key);
    append(json, "%lld", value);
}

void json_bool(struct json *json, const char *key, bool value) {
    append_key(json, key);
    append(json, value ? "true" : "false");
}

void json_null(struct json *json, const char *key) {
    append_key(json, key);
    append(json, "null");
}

void json_integers(struct json *json, const char *key, const unsigned int *values, size_t count) {
    append_key(json, key);
    append(json, "[");
    for (size_t i = 0; i < count; i++)
        append(json, "%s%u", i ? "," : "", values[i]);
    append(json, "]");
}

void json_decimals(struct json *json, const char *key, const double *values, size_t count) {
    append_key(json, key);
    append(json, "[");
    for (size_t i = 0; i < count; i++)
        append(json, "%s%.3f", i ? "," : "", values[i]);
    append(json, "]");
}

void json_list_begin(struct json *json, const char *key) {
    append_key(json, key);
    append(json, "[");
}

void json_item_begin(struct json *json) { append(json, "%s{", comma(json)); }

void json_item_end(struct json *json) { append(json, "}"); }

void json_list_end(struct json *json) { append(json, "]"); }

void json_end(struct json *json) {
    json->text[json->used++] = '}';
    json->text[json->used++] = '\n';
    for (size_t written = 0; written < json->used;) {
        ssize_t count = write(STDOUT_FILENO, json->text + written, json->used - written);
        if (count < 0)
            return; // nobody reads any more; the owner's death detaches
        written += count;
    }
}
