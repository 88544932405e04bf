#include "io/json.h"

#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HASH_DIGITS = 16 };

sherd_status shd_json_parse(const char *text, int64_t bytes, json_t **out) {
    json_error_t error;
    /* jansson skips a zero byte behind a number, which no other reader does. */
    const char *zero = memchr(text, 0, (size_t)bytes);
    if (zero) return shd_fail(SHERD_DATA, "JSON: a zero byte after %lld bytes", (long long)(zero - text));
    json_t *value = json_loadb(text, (size_t)bytes, JSON_REJECT_DUPLICATES, &error);
    if (!value) return shd_fail(SHERD_DATA, "JSON, line %d, column %d: %s", error.line, error.column, error.text);
    if (!json_is_object(value)) {
        json_decref(value);
        return shd_fail(SHERD_DATA, "JSON: an object is expected");
    }
    *out = value;
    return SHERD_OK;
}

sherd_status shd_json_print(const json_t *value, int32_t indent, char **out) {
    size_t flags = (indent ? JSON_INDENT((size_t)indent) : JSON_COMPACT) | JSON_ENCODE_ANY;
    size_t bytes = json_dumpb(value, NULL, 0, flags);
    char *text = bytes ? shd_alloc(bytes + 1, 1) : NULL;
    if (!text || json_dumpb(value, text, bytes, flags) != bytes) {
        shd_free(text);
        return shd_fail(SHERD_MEMORY, "out of memory for a JSON text");
    }
    *out = text;
    return SHERD_OK;
}

sherd_status shd_json_int(const json_t *object, const char *key, int64_t lowest, int64_t highest, int64_t *out) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < lowest || json_integer_value(value) > highest)
        return shd_fail(SHERD_DATA, "\"%s\" must be an integer from %lld to %lld", key, (long long)lowest,
                        (long long)highest);
    *out = json_integer_value(value);
    return SHERD_OK;
}

sherd_status shd_json_bool(const json_t *object, const char *key, bool *out) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_boolean(value)) return shd_fail(SHERD_DATA, "\"%s\" must be true or false", key);
    *out = json_is_true(value);
    return SHERD_OK;
}

sherd_status shd_json_text(const json_t *object, const char *key, const char **out) {
    const char *value = json_string_value(json_object_get(object, key));
    if (!value) return shd_fail(SHERD_DATA, "\"%s\" must be a text", key);
    *out = value;
    return SHERD_OK;
}

sherd_status shd_json_array(const json_t *object, const char *key, json_t **out) {
    json_t *value = json_object_get(object, key);
    if (!json_is_array(value)) return shd_fail(SHERD_DATA, "\"%s\" must be a list", key);
    *out = value;
    return SHERD_OK;
}

sherd_status shd_json_hash(const json_t *object, const char *key, uint64_t *out) {
    const char *text = json_string_value(json_object_get(object, key));
    if (!text || strlen(text) != HASH_DIGITS || strspn(text, "0123456789abcdef") != HASH_DIGITS)
        return shd_fail(SHERD_DATA, "\"%s\" must be %d hexadecimal digits", key, HASH_DIGITS);
    *out = strtoull(text, NULL, 16);
    return SHERD_OK;
}

json_t *shd_json_from_text(const char *text) {
    size_t left = strlen(text);
    char *good = shd_strdup(text);
    uint32_t code;
    for (char *at = good; good && left > 0;) {
        int bytes = shd_utf8_read(at, left, &code);
        if (bytes == 0) *at = '?';
        at += bytes ? bytes : 1;
        left -= bytes ? (size_t)bytes : 1;
    }
    json_t *made = good ? json_string(good) : NULL;
    shd_free(good);
    return made;
}

json_t *shd_json_from_hash(uint64_t hash) { return json_sprintf("%016llx", (unsigned long long)hash); }

sherd_status shd_json_requires(const json_t *object) {
    const json_t *list = json_object_get(object, "requires");
    if (!list) return SHERD_OK;
    if (!json_is_array(list)) return shd_fail(SHERD_DATA, "\"requires\" must be a list");
    if (json_array_size(list) == 0) return SHERD_OK;
    const char *name = json_string_value(json_array_get(list, 0));
    if (!name) return shd_fail(SHERD_DATA, "\"requires\" must be a list of texts");
    return shd_fail(SHERD_UNSUPPORTED,
                    "it requires \"%.100s\", which this build does not know: read it with a newer one", name);
}
