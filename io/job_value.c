/* One value of a job: a YAML node, checked against its key and stored in its field. */
#include "io/job_keys.h"
#include "io/yaml_scalar.h"
#include "runtime/base/status.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* "12.5 is a number": what was found, for the message. */
static const char *found_text(const shd_yaml_node *node, char text[SHD_JOB_TEXT_BYTES]) {
    if (node->kind == SHD_YAML_LIST) return "a list";
    if (node->kind == SHD_YAML_MAP) return "a section of keys";
    static const char *const kinds[] = {
        [SHD_SCALAR_EMPTY] = "no value",
        [SHD_SCALAR_NULL] = "null",
        [SHD_SCALAR_BOOL] = "a boolean",
        [SHD_SCALAR_INT] = "a whole number",
        [SHD_SCALAR_REAL] = "a number with a point or exponent",
        [SHD_SCALAR_ODD] = "a number in a form that YAML dialects read differently",
        [SHD_SCALAR_TEXT] = "a text",
    };
    shd_scalar_kind kind = shd_scalar_read(node).kind;
    if (kind == SHD_SCALAR_EMPTY || kind == SHD_SCALAR_NULL) return kinds[kind];
    bool quoted = !node->plain;
    bool cut = strlen(node->text) > 100;
    snprintf(text, SHD_JOB_TEXT_BYTES, "'%.100s%s' is %s%s", node->text, cut ? "…" : "", kinds[kind],
             quoted ? " in quotes" : "");
    return text;
}

/* The way to write what was probably meant; "" when that is not known. */
static void add_hint(const shd_job_key *key, const shd_yaml_node *node, char hint[SHD_JOB_TEXT_BYTES]) {
    hint[0] = 0;
    if (node->kind != SHD_YAML_SCALAR) return;
    shd_scalar scalar = shd_scalar_read(node);
    bool number = key->kind == SHD_KIND_INT || key->kind == SHD_KIND_INTS || key->kind == SHD_KIND_INT_OR_AUTO ||
                  key->kind == SHD_KIND_INT_OR_NULL || key->kind == SHD_KIND_SIGNED_OR_NULL;
    bool text = key->kind == SHD_KIND_NAME || key->kind == SHD_KIND_TEXT || key->kind == SHD_KIND_TEXTS ||
                key->kind == SHD_KIND_WORD_OR_TEXTS || key->kind == SHD_KIND_PATH ||
                key->kind == SHD_KIND_PATH_OR_NULL || key->kind == SHD_KIND_WORD_OR_PATH ||
                key->kind == SHD_KIND_SOURCES || key->kind == SHD_KIND_SOURCES_OR_NULL;
    bool meaning;
    if (number && scalar.kind == SHD_SCALAR_REAL && scalar.real == floor(scalar.real) && fabs(scalar.real) < 1e15)
        snprintf(hint, SHD_JOB_TEXT_BYTES, "; write %.0f", scalar.real);
    else if (!text && scalar.kind == SHD_SCALAR_ODD)
        snprintf(hint, SHD_JOB_TEXT_BYTES, "; write it in plain decimal digits");
    else if (text && scalar.kind != SHD_SCALAR_EMPTY && scalar.kind != SHD_SCALAR_NULL &&
             scalar.kind != SHD_SCALAR_TEXT)
        snprintf(hint, SHD_JOB_TEXT_BYTES, "; if it is a text, write \"%.100s\"", node->text);
    else if (key->kind == SHD_KIND_BOOL && shd_scalar_is_old_boolean(node->text, &meaning))
        snprintf(hint, SHD_JOB_TEXT_BYTES, "; write %s", meaning ? "true" : "false");
    else if (!text && !node->plain)
        snprintf(hint, SHD_JOB_TEXT_BYTES, "; write it without quotes");
    else if ((key->kind == SHD_KIND_PATH_OR_NULL || key->kind == SHD_KIND_SOURCES_OR_NULL) &&
             scalar.kind == SHD_SCALAR_EMPTY)
        snprintf(hint, SHD_JOB_TEXT_BYTES, "; write null for none");
}

static sherd_status wrong_type(const shd_job_key *key, const shd_yaml_node *node) {
    char expected[SHD_JOB_TEXT_BYTES], found[SHD_JOB_TEXT_BYTES], hint[SHD_JOB_TEXT_BYTES];
    shd_job_expected(key, expected);
    add_hint(key, node, hint);
    return shd_yaml_fail(&node->place, key->path, "%s; expected %s%s", found_text(node, found), expected, hint);
}

static sherd_status out_of_range(const shd_job_key *key, const shd_yaml_node *node) {
    char expected[SHD_JOB_TEXT_BYTES];
    shd_job_expected(key, expected);
    return shd_yaml_fail(&node->place, key->path, "%.100s is out of range; expected %s", node->text, expected);
}

/* --- numbers ------------------------------------------------------------------------------------------------------ */

static sherd_status store_int(const shd_job_key *key, const shd_yaml_node *node, int64_t *field) {
    shd_scalar scalar = shd_scalar_read(node);
    if (key->kind == SHD_KIND_INT_OR_NULL && scalar.kind == SHD_SCALAR_NULL) {
        *field = -1;
        return SHERD_OK;
    }
    if (key->kind == SHD_KIND_SIGNED_OR_NULL && scalar.kind == SHD_SCALAR_NULL) {
        *field = INT64_MIN;
        return SHERD_OK;
    }
    if (key->kind == SHD_KIND_INT_OR_AUTO && scalar.kind == SHD_SCALAR_TEXT && strcmp(node->text, "auto") == 0) {
        *field = 0;
        return SHERD_OK;
    }
    if (scalar.kind != SHD_SCALAR_INT) return wrong_type(key, node);
    if (scalar.overflow || scalar.integer < key->low || scalar.integer > key->high) return out_of_range(key, node);
    *field = scalar.integer;
    return SHERD_OK;
}

static sherd_status store_ints(shd_job *job, const shd_job_key *key, const shd_yaml_node *node,
                               shd_job_integers *field) {
    if (node->kind != SHD_YAML_LIST) return wrong_type(key, node);
    int64_t *items = shd_keep_take(job->keep, sizeof *items * (size_t)(node->child_count + 1));
    if (!items) return shd_fail(SHERD_MEMORY, "%s: out of memory", job->path);
    int32_t count = 0;
    for (const shd_yaml_node *item = node->first_child; item; item = item->next) {
        if (item->kind != SHD_YAML_SCALAR) return wrong_type(key, item);
        SHD_TRY(store_int(key, item, &items[count++]));
    }
    *field = (shd_job_integers){.items = items, .count = count};
    return SHERD_OK;
}

static sherd_status store_real(const shd_job_key *key, const shd_yaml_node *node, double *field) {
    if (node->kind != SHD_YAML_SCALAR) return wrong_type(key, node);
    shd_scalar scalar = shd_scalar_read(node);
    if (scalar.kind != SHD_SCALAR_INT && scalar.kind != SHD_SCALAR_REAL) return wrong_type(key, node);
    if (scalar.overflow)
        return shd_yaml_fail(&node->place, key->path,
                             "%.100s does not fit a double; write a number of a size that makes sense here",
                             node->text);
    if (!isfinite(scalar.real)) return out_of_range(key, node);
    bool low = key->low_open ? scalar.real > key->real_low : scalar.real >= key->real_low;
    bool high = key->high_open ? scalar.real < key->real_high : scalar.real <= key->real_high;
    if (!low || !high) return out_of_range(key, node);
    *field = scalar.real;
    return SHERD_OK;
}

static sherd_status store_pair(const shd_job_key *key, const shd_yaml_node *node, shd_job_pair *field) {
    if (node->kind != SHD_YAML_LIST) return wrong_type(key, node);
    if (node->child_count != 2) {
        char expected[SHD_JOB_TEXT_BYTES];
        shd_job_expected(key, expected);
        return shd_yaml_fail(&node->place, key->path, "a list of %d; expected %s", node->child_count, expected);
    }
    SHD_TRY(store_real(key, node->first_child, &field->at[0]));
    return store_real(key, node->first_child->next, &field->at[1]);
}

/* --- words and texts ---------------------------------------------------------------------------------------------- */

static sherd_status out_of_memory(const shd_job *job) { return shd_fail(SHERD_MEMORY, "%s: out of memory", job->path); }

/* The text of a scalar that is one, not a number or null. */
static sherd_status store_text(shd_job *job, const shd_job_key *key, const shd_yaml_node *node, const char **field) {
    if (node->kind != SHD_YAML_SCALAR || shd_scalar_read(node).kind != SHD_SCALAR_TEXT) return wrong_type(key, node);
    if (*node->text == 0) return shd_yaml_fail(&node->place, key->path, "an empty text; write one or remove the key");
    *field = shd_keep_text(job->keep, node->text, strlen(node->text));
    return *field ? SHERD_OK : out_of_memory(job);
}

static sherd_status store_name(shd_job *job, const shd_job_key *key, const shd_yaml_node *node, const char **field) {
    SHD_TRY(store_text(job, key, node, field));
    bool dots = strcmp(*field, ".") == 0 || strcmp(*field, "..") == 0;
    if (dots || strchr(*field, '/') || strlen(*field) > 200)
        return shd_yaml_fail(&node->place, key->path,
                             "'%.100s' cannot name a folder; write a text without '/' of at most 200 bytes", *field);
    return SHERD_OK;
}

/* The index of the scalar among the key's words, -1 when it is none. */
static int32_t find_word(const shd_job_key *key, const shd_yaml_node *node) {
    if (node->kind != SHD_YAML_SCALAR) return -1;
    for (int32_t i = 0; key->words[i]; i++)
        if (strcmp(node->text, key->words[i]) == 0) return i;
    return -1;
}

/* A scalar that is none of the key's words. */
static sherd_status unknown_word(const shd_job_key *key, const shd_yaml_node *node) {
    if (node->kind != SHD_YAML_SCALAR || shd_scalar_read(node).kind == SHD_SCALAR_EMPTY) return wrong_type(key, node);
    char expected[SHD_JOB_TEXT_BYTES];
    shd_job_expected(key, expected);
    return shd_yaml_fail(&node->place, key->path, "'%.100s' is not available; expected %s", node->text, expected);
}

static sherd_status store_choice(const shd_job_key *key, const shd_yaml_node *node, void *field) {
    int32_t word = find_word(key, node);
    if (word < 0) return unknown_word(key, node);
    _Static_assert(sizeof(shd_job_family) == sizeof word, "enums are stored as 32-bit integers");
    memcpy(field, &word, sizeof word);
    return SHERD_OK;
}

static sherd_status store_texts(shd_job *job, const shd_job_key *key, const shd_yaml_node *node, shd_job_texts *field) {
    if (node->kind != SHD_YAML_LIST) return wrong_type(key, node);
    const char **items = shd_keep_take(job->keep, sizeof *items * (size_t)(node->child_count + 1));
    if (!items) return out_of_memory(job);
    int32_t count = 0;
    for (const shd_yaml_node *item = node->first_child; item; item = item->next)
        SHD_TRY(store_text(job, key, item, &items[count++]));
    *field = (shd_job_texts){.items = items, .count = count};
    return SHERD_OK;
}

static sherd_status store_words(shd_job *job, const shd_job_key *key, const shd_yaml_node *node, shd_job_texts *field) {
    if (node->kind != SHD_YAML_LIST) return wrong_type(key, node);
    for (const shd_yaml_node *item = node->first_child; item; item = item->next)
        if (find_word(key, item) < 0) return unknown_word(key, item);
    return store_texts(job, key, node, field);
}

static sherd_status store_selection(shd_job *job, const shd_job_key *key, const shd_yaml_node *node,
                                    shd_job_selection *field) {
    *field = (shd_job_selection){0};
    if (node->kind == SHD_YAML_LIST) return store_texts(job, key, node, &field->texts);
    field->word = find_word(key, node);
    return field->word < 0 ? unknown_word(key, node) : SHERD_OK;
}

static sherd_status store_source(shd_job *job, const shd_job_key *key, const shd_yaml_node *node,
                                 shd_job_source *field) {
    int32_t word = find_word(key, node);
    if (word >= 0) {
        *field = (shd_job_source){.word = word};
        return SHERD_OK;
    }
    field->word = 0;
    return store_text(job, key, node, &field->path);
}

static sherd_status store_bool(const shd_job_key *key, const shd_yaml_node *node, bool *field) {
    shd_scalar scalar = shd_scalar_read(node);
    if (scalar.kind != SHD_SCALAR_BOOL) return wrong_type(key, node);
    *field = scalar.boolean;
    return SHERD_OK;
}

static bool is_null(const shd_yaml_node *node) {
    return node->kind == SHD_YAML_SCALAR && shd_scalar_read(node).kind == SHD_SCALAR_NULL;
}

sherd_status shd_job_store(shd_job *job, const shd_job_key *key, const shd_yaml_node *node, void *field) {
    bool scalar = node->kind == SHD_YAML_SCALAR;
    switch (key->kind) {
    case SHD_KIND_NAME: return store_name(job, key, node, field);
    case SHD_KIND_BOOL: return scalar ? store_bool(key, node, field) : wrong_type(key, node);
    case SHD_KIND_INT:
    case SHD_KIND_INT_OR_AUTO:
    case SHD_KIND_INT_OR_NULL:
    case SHD_KIND_SIGNED_OR_NULL: return scalar ? store_int(key, node, field) : wrong_type(key, node);
    case SHD_KIND_INTS: return store_ints(job, key, node, field);
    case SHD_KIND_REAL: return store_real(key, node, field);
    case SHD_KIND_REAL_OR_NULL:
        if (!is_null(node)) return store_real(key, node, field);
        *(double *)field = -1;
        return SHERD_OK;
    case SHD_KIND_PAIR: return store_pair(key, node, field);
    case SHD_KIND_CHOICE: return store_choice(key, node, field);
    case SHD_KIND_TEXTS: return store_texts(job, key, node, field);
    case SHD_KIND_WORDS_OF: return store_words(job, key, node, field);
    case SHD_KIND_WORD_OR_TEXTS: return store_selection(job, key, node, field);
    case SHD_KIND_GROUPS:
        return node->kind == SHD_YAML_LIST ? shd_job_store_groups(job, key, node, field) : wrong_type(key, node);
    case SHD_KIND_PATH_OR_NULL:
        if (!is_null(node)) return store_text(job, key, node, field);
        *(const char **)field = NULL;
        return SHERD_OK;
    case SHD_KIND_TEXT:
    case SHD_KIND_PATH: return store_text(job, key, node, field);
    case SHD_KIND_WORD_OR_PATH: return store_source(job, key, node, field);
    case SHD_KIND_SOURCES_OR_NULL:
        *(shd_job_sources *)field = (shd_job_sources){0};
        if (is_null(node)) return SHERD_OK;
        if (scalar && shd_scalar_read(node).kind != SHD_SCALAR_TEXT) return wrong_type(key, node);
        return shd_job_store_sources(job, key, node, field);
    case SHD_KIND_SOURCES:
        if (scalar && shd_scalar_read(node).kind != SHD_SCALAR_TEXT) return wrong_type(key, node);
        return shd_job_store_sources(job, key, node, field);
    }
    return shd_fail(SHERD_INTERNAL, "%s: a key of no kind", key->path);
}
