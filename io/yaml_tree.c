#include "io/yaml_tree.h"

#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml.h>

sherd_status shd_yaml_fail(const shd_yaml_place *place, const char *key, const char *format, ...) {
    char text[1536], where[32] = "";
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (place->line > 0) snprintf(where, sizeof where, ":%d:%d", place->line, place->column);
    return shd_fail(SHERD_CONFIG, "%s%s: %s%s%s", place->source, where, key ? key : "", key ? ": " : "", text);
}

/* --- the bytes ---------------------------------------------------------------------------------------------------- */

/* Refuses what libyaml would take, or would report without its place. */
static sherd_status check_bytes(const char *source, bool numbered, const char *bytes, size_t length) {
    const unsigned char *at = (const unsigned char *)bytes;
    shd_yaml_place place = {.source = source, .line = numbered, .column = numbered};
    if (length >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0)
        return shd_yaml_fail(&place, NULL, "starts with a byte order mark; save the file as UTF-8 without one");
    if (length >= 2 && (memcmp(bytes, "\xff\xfe", 2) == 0 || memcmp(bytes, "\xfe\xff", 2) == 0))
        return shd_yaml_fail(&place, NULL, "is UTF-16; save the file as UTF-8");
    bool indentation = true;
    for (size_t i = 0; i < length;) {
        uint32_t code;
        int count = shd_utf8_read(bytes + i, length - i, &code);
        if (count == 0) return shd_yaml_fail(&place, NULL, "byte 0x%02x is not UTF-8; save the file as UTF-8", at[i]);
        if (at[i] == '\t' && indentation)
            return shd_yaml_fail(&place, NULL, "a tab as indentation; YAML indents with spaces");
        bool space = code == '\t' || code == '\n' || code == '\r';
        if (!space && !shd_utf8_shows(code))
            return shd_yaml_fail(&place, NULL, "control character U+%04X; remove it", code);
        bool line_end = at[i] == '\n' || (at[i] == '\r' && (i + 1 == length || at[i + 1] != '\n'));
        indentation = line_end || (indentation && at[i] == ' ');
        if (numbered) place.column = line_end ? 1 : place.column + 1;
        if (numbered) place.line += line_end;
        i += (size_t)count;
    }
    return SHERD_OK;
}

/* --- the events --------------------------------------------------------------------------------------------------- */

typedef struct reader {
    yaml_parser_t parser;
    const char *source;
    bool numbered;
    shd_keep *keep;
} reader;

static shd_yaml_place place_at(const reader *in, const yaml_mark_t *mark) {
    return (shd_yaml_place){.source = in->source,
                            .line = in->numbered ? (int32_t)mark->line + 1 : 0,
                            .column = in->numbered ? (int32_t)mark->column + 1 : 0};
}

static sherd_status next_event(reader *in, yaml_event_t *event) {
    if (yaml_parser_parse(&in->parser, event)) return SHERD_OK;
    if (in->parser.error == YAML_MEMORY_ERROR) return shd_fail(SHERD_MEMORY, "%s: out of memory", in->source);
    shd_yaml_place place = place_at(in, &in->parser.problem_mark);
    return shd_yaml_fail(&place, NULL, "not YAML: %s; check indentation, colons and quotes here",
                         in->parser.problem ? in->parser.problem : "unreadable");
}

/* What an event marks a node with and no job may use. */
static sherd_status check_marks(const shd_yaml_place *place, const yaml_char_t *anchor, const yaml_char_t *tag) {
    if (anchor)
        return shd_yaml_fail(place, NULL, "anchor '&%s'; a job has no anchors, write the value where it is used",
                             (const char *)anchor);
    if (tag) return shd_yaml_fail(place, NULL, "tag '%s'; a job has no tags, write the bare value", (const char *)tag);
    return SHERD_OK;
}

static sherd_status read_node(reader *in, const yaml_event_t *event, int depth, shd_yaml_node **out);

/* The children of a list or map, up to its end event. */
static sherd_status read_children(reader *in, shd_yaml_node *parent, int depth) {
    if (depth > SHD_YAML_MAX_DEPTH)
        return shd_yaml_fail(&parent->place, NULL, "nested deeper than %d levels; a job has at most 4",
                             SHD_YAML_MAX_DEPTH);
    for (shd_yaml_node **link = &parent->first_child;; link = &(*link)->next) {
        yaml_event_t event;
        SHD_TRY(next_event(in, &event));
        bool end = event.type == YAML_SEQUENCE_END_EVENT || event.type == YAML_MAPPING_END_EVENT;
        sherd_status status = end ? SHERD_OK : read_node(in, &event, depth, link);
        yaml_event_delete(&event);
        if (end || status != SHERD_OK) return status;
        parent->child_count++;
    }
}

/* Names and paths are shown, and kept in a checkpoint's note, from where they must come back: neither an escape nor a
 * text of several lines brings in what check_bytes refuses. */
static sherd_status check_text(const shd_yaml_place *place, const char *text, size_t length) {
    uint32_t code = 0;
    for (size_t i = 0; i < length;) {
        int count = shd_utf8_read(text + i, length - i, &code);
        if (count == 0 || !shd_utf8_shows(code))
            return shd_yaml_fail(place, NULL, "control character U+%04X inside a text; remove it", code);
        i += (size_t)count;
    }
    return SHERD_OK;
}

static sherd_status read_scalar(reader *in, const yaml_event_t *event, shd_yaml_node *node) {
    SHD_TRY(check_marks(&node->place, event->data.scalar.anchor, event->data.scalar.tag));
    const char *text = (const char *)event->data.scalar.value;
    size_t length = event->data.scalar.length;
    node->plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    SHD_TRY(check_text(&node->place, text, length));
    node->text = shd_keep_text(in->keep, text, length);
    return node->text ? SHERD_OK : shd_fail(SHERD_MEMORY, "%s: out of memory", in->source);
}

static sherd_status read_node(reader *in, const yaml_event_t *event, int depth, shd_yaml_node **out) {
    shd_yaml_place place = place_at(in, &event->start_mark);
    if (event->type == YAML_ALIAS_EVENT)
        return shd_yaml_fail(&place, NULL, "alias '*%s'; a job has no aliases, write the value out",
                             (const char *)event->data.alias.anchor);
    shd_yaml_node *node = shd_keep_take(in->keep, sizeof *node);
    if (!node) return shd_fail(SHERD_MEMORY, "%s: out of memory", in->source);
    *node = (shd_yaml_node){.place = place};
    *out = node;
    if (event->type == YAML_SCALAR_EVENT) return read_scalar(in, event, node);
    if (event->type == YAML_SEQUENCE_START_EVENT) {
        node->kind = SHD_YAML_LIST;
        SHD_TRY(check_marks(&place, event->data.sequence_start.anchor, event->data.sequence_start.tag));
    } else {
        node->kind = SHD_YAML_MAP;
        SHD_TRY(check_marks(&place, event->data.mapping_start.anchor, event->data.mapping_start.tag));
    }
    return read_children(in, node, depth + 1);
}

static sherd_status check_document_start(const reader *in, const yaml_event_t *event) {
    shd_yaml_place place = place_at(in, &event->start_mark);
    if (event->data.document_start.version_directive ||
        event->data.document_start.tag_directives.start != event->data.document_start.tag_directives.end)
        return shd_yaml_fail(&place, NULL, "a YAML directive; a job has none, remove the line that starts with %%");
    return SHERD_OK;
}

/* Stream start, then one document, then stream end. */
static sherd_status read_stream(reader *in, const shd_yaml_node **out) {
    shd_yaml_node *root = NULL;
    for (;;) {
        yaml_event_t event;
        SHD_TRY(next_event(in, &event));
        yaml_event_type_t type = event.type;
        shd_yaml_place place = place_at(in, &event.start_mark);
        sherd_status status = SHERD_OK;
        if (type == YAML_DOCUMENT_START_EVENT) {
            status = root ? shd_yaml_fail(&place, NULL, "a second document; a job is one document, remove this '---'")
                          : check_document_start(in, &event);
        } else if (type != YAML_STREAM_START_EVENT && type != YAML_STREAM_END_EVENT &&
                   type != YAML_DOCUMENT_END_EVENT) {
            status = read_node(in, &event, 0, &root);
        }
        yaml_event_delete(&event);
        if (status != SHERD_OK) return status;
        if (type == YAML_STREAM_END_EVENT) break;
    }
    shd_yaml_place start = {.source = in->source, .line = in->numbered, .column = in->numbered};
    if (!root)
        return shd_yaml_fail(&start, NULL, "%s",
                             in->numbered ? "empty; a job starts with 'name: …'" : "no value; write key.path=value");
    *out = root;
    return SHERD_OK;
}

sherd_status shd_yaml_parse(const char *source, bool numbered, const char *bytes, size_t length, shd_keep *keep,
                            const shd_yaml_node **out) {
    SHD_TRY(check_bytes(source, numbered, bytes, length));
    reader in = {.source = source, .numbered = numbered, .keep = keep};
    if (!yaml_parser_initialize(&in.parser)) return shd_fail(SHERD_MEMORY, "%s: out of memory", source);
    yaml_parser_set_encoding(&in.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&in.parser, (const unsigned char *)bytes, length);
    sherd_status status = read_stream(&in, out);
    yaml_parser_delete(&in.parser);
    return status;
}

/* Up to `capacity` bytes of the file. */
static sherd_status read_bytes(const char *path, char *bytes, size_t capacity, size_t *length) {
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) return shd_fail(SHERD_IO, "%s: cannot open the job file: %s", path, strerror(errno));
    struct stat about;
    sherd_status status = SHERD_OK;
    if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode))
        status = shd_fail(SHERD_IO, "%s: not a regular file; give the path of a job file", path);
    while (status == SHERD_OK && *length < capacity) {
        ssize_t got = read(file, bytes + *length, capacity - *length);
        if (got == 0) break;
        if (got < 0 && errno != EINTR) status = shd_fail(SHERD_IO, "%s: cannot read: %s", path, strerror(errno));
        if (got > 0) *length += (size_t)got;
    }
    close(file);
    return status;
}

sherd_status shd_yaml_read(const char *path, shd_keep *keep, const char **out, size_t *out_length) {
    enum { CAPACITY = SHD_YAML_MAX_BYTES + 1 };
    char *bytes = shd_alloc(CAPACITY, 1);
    if (!bytes) return shd_fail(SHERD_MEMORY, "%s: out of memory", path);
    size_t length = 0;
    sherd_status status = read_bytes(path, bytes, CAPACITY, &length);
    const shd_yaml_place start = {.source = path, .line = 1, .column = 1};
    if (status == SHERD_OK && length > SHD_YAML_MAX_BYTES)
        status = shd_yaml_fail(&start, NULL, "longer than %d bytes; this is no job file", SHD_YAML_MAX_BYTES);
    const char *kept = status == SHERD_OK ? shd_keep_text(keep, bytes, length) : NULL;
    shd_free(bytes);
    if (status != SHERD_OK) return status;
    if (!kept) return shd_fail(SHERD_MEMORY, "%s: out of memory", path);
    *out = kept;
    *out_length = length;
    return SHERD_OK;
}
