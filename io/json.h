/* JSON from files that nobody vouches for: each reader checks type and range and says which key is wrong.
 *
 * Causes do not name the file: callers put it before them with shd_fail_within. */
#ifndef SHD_IO_JSON_H
#define SHD_IO_JSON_H

#include <jansson.h>
#include <sherd/status.h>
#include <stdint.h>

/* Parses one object, without repeated keys; release *out with json_decref. Fails: DATA with line and column. */
sherd_status shd_json_parse(const char *text, int64_t bytes, json_t **out);
/* The text of `value`, one line when `indent` is 0; release *out with shd_free. Fails: MEMORY. */
sherd_status shd_json_print(const json_t *value, int32_t indent, char **out);

/* The value of a key that must be there. What they give is borrowed from `object`. Fail: DATA. */
sherd_status shd_json_int(const json_t *object, const char *key, int64_t lowest, int64_t highest, int64_t *out);
sherd_status shd_json_bool(const json_t *object, const char *key, bool *out);
sherd_status shd_json_text(const json_t *object, const char *key, const char **out);
sherd_status shd_json_array(const json_t *object, const char *key, json_t **out);
/* 64 bits as 16 hexadecimal digits: JSON's integers are signed. */
sherd_status shd_json_hash(const json_t *object, const char *key, uint64_t *out);
json_t *shd_json_from_hash(uint64_t hash);
/* A text from elsewhere, such as the name of a file, which JSON may not be able to hold: bytes that are no UTF-8 are '?'.
 * NULL when memory is out. */
json_t *shd_json_from_text(const char *text);
/* Refuses an object that names, in a list "requires", what a reader must know to read it: this one knows of nothing
 * that could be named. Unknown keys are ignored otherwise. Fails: UNSUPPORTED (the name), DATA (no list of texts). */
sherd_status shd_json_requires(const json_t *object);

#endif
