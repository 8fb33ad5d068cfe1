// SPDX-License-Identifier: Apache-2.0
#include "json.h"

#include <stdlib.h>
#include <unistd.h>

static void write_escaped(FILE *stream, const char *value) {
    for (const unsigned char *at = (const unsigned char *)value; *at; at++) {
        if (*at == '"' || *at == '\\')
            fprintf(stream, "\\%c", *at);
        else if (*at < 0x20 || *at >= 0x7f) // names in broken objects are no UTF-8
            fprintf(stream, "\\u%04x", *at);
        else
            fputc(*at, stream);
    }
}

static FILE *key_of(struct json *json, const char *key) {
    fprintf(json->stream, ",\"%s\":", key);
    return json->stream;
}

void json_begin(struct json *json, const char *type) {
    json->stream = open_memstream(&json->text, &json->size);
    if (!json->stream)
        abort();
    fprintf(json->stream, "{\"type\":\"%s\"", type);
}

void json_string(struct json *json, const char *key, const char *value) {
    FILE *stream = key_of(json, key);
    if (!value) {
        fputs("null", stream);
        return;
    }
    fputc('"', stream);
    write_escaped(stream, value);
    fputc('"', stream);
}

void json_integer(struct json *json, const char *key, long long value) {
    fprintf(key_of(json, key), "%lld", value);
}

void json_known(struct json *json, const char *key, long long value) {
    if (value < 0)
        json_string(json, key, NULL);
    else
        json_integer(json, key, value);
}

void json_hex(struct json *json, const char *key, unsigned long long value) {
    fprintf(key_of(json, key), "\"%016llx\"", value);
}

void json_integers(struct json *json, const char *key, const long long *values, size_t count) {
    FILE *stream = key_of(json, key);
    fputc('[', stream);
    for (size_t i = 0; i < count; i++)
        if (values[i] < 0)
            fprintf(stream, "%snull", i ? "," : "");
        else
            fprintf(stream, "%s%lld", i ? "," : "", values[i]);
    fputc(']', stream);
}

void json_end(struct json *json) {
    fputs("}\n", json->stream);
    fclose(json->stream);
    for (size_t written = 0; written < json->size;) {
        ssize_t count = write(STDOUT_FILENO, json->text + written, json->size - written);
        if (count < 0)
            break; // nobody reads any more
        written += count;
    }
    free(json->text);
}
