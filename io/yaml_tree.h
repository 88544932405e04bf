/* A YAML document as a small tree of nodes with their places, read from libyaml's events.
 *
 * Strict: one document, UTF-8 without byte order mark, no tabs as indentation, no anchors, aliases, tags or directives,
 * no control characters, at most SHD_YAML_MAX_DEPTH deep; a file is at most SHD_YAML_MAX_BYTES long. */
#ifndef SHD_IO_YAML_TREE_H
#define SHD_IO_YAML_TREE_H

#include "io/keep.h"

#include <sherd/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHD_YAML_MAX_DEPTH = 16, SHD_YAML_MAX_BYTES = 1 << 20 };

/* Where something was written. A NULL source: nowhere, it is a default. */
typedef struct shd_yaml_place {
    const char *source;   /* the file's name, or the option and setting of the command line */
    int32_t line, column; /* from 1, column in characters; 0 for settings */
} shd_yaml_place;

typedef enum shd_yaml_kind { SHD_YAML_SCALAR, SHD_YAML_LIST, SHD_YAML_MAP } shd_yaml_kind;

typedef struct shd_yaml_node {
    shd_yaml_kind kind;
    shd_yaml_place place;
    const char *text; /* of a scalar, terminated, without NUL inside */
    bool plain;       /* the scalar was written without quotes, so it may be a number, a boolean or null */
    int32_t child_count;
    struct shd_yaml_node *first_child, *next; /* a map's children are key, value, key, value, … */
} shd_yaml_node;

/* Fails with CONFIG and "source:line:column: [key: ]" before the printed text; `key` may be NULL. */
sherd_status shd_yaml_fail(const shd_yaml_place *place, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));

/* Parses `length` bytes. `source` names them in messages and places; `numbered` says whether lines and columns mean
 * anything to the user.
 * Owns: nodes and texts live in `keep`, `source` is kept. Fails: CONFIG, MEMORY. */
sherd_status shd_yaml_parse(const char *source, bool numbered, const char *bytes, size_t length, shd_keep *keep,
                            const shd_yaml_node **out);

/* The bytes of a file, of at most SHD_YAML_MAX_BYTES. Owns: they live in `keep`. Fails: CONFIG, IO, MEMORY. */
sherd_status shd_yaml_read(const char *path, shd_keep *keep, const char **out, size_t *out_length);

#endif
