/* What the schema says to people: the value of a key, `--explain`, docs/JOB.md, and the job as JSON. */
#include "io/job_keys.h"
#include "io/text.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* --- JSON --------------------------------------------------------------------------------------------------------- */

static json_t *source_json(const shd_job_key *key, const shd_job_source *source) {
    return json_string(source->path ? source->path : key->words[source->word]);
}

static json_t *texts_json(const shd_job_texts *texts) {
    json_t *list = json_array();
    for (int32_t i = 0; list && i < texts->count; i++)
        if (json_array_append_new(list, json_string(texts->items[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *integers_json(const shd_job_integers *integers) {
    json_t *list = json_array();
    for (int32_t i = 0; list && i < integers->count; i++)
        if (json_array_append_new(list, json_integer(integers->items[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *value_json(const void *owner, const shd_job_key *key);

/* An object with all keys of the group. */
static json_t *group_json(const sherd_optimizer_group *group) {
    int32_t count;
    const shd_job_key *keys = shd_job_group_keys(&count);
    json_t *object = json_object();
    for (int32_t i = 0; object && i < count; i++)
        if (json_object_set_new(object, keys[i].name, value_json(group, &keys[i])) != 0) {
            json_decref(object);
            return NULL;
        }
    return object;
}

static json_t *groups_json(const shd_job_groups *groups) {
    json_t *list = json_array();
    for (int32_t i = 0; list && i < groups->count; i++)
        if (json_array_append_new(list, group_json(&groups->items[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

/* The value of `key` in `owner`, a job or a group, a new reference; NULL when memory is out. */
static json_t *value_json(const void *owner, const shd_job_key *key) {
    const void *field = (const char *)owner + key->offset;
    const shd_job_selection *selection = field;
    const char *text = NULL;
    int64_t integer = 0;
    switch (key->kind) {
    case SHD_KIND_BOOL: return json_boolean(*(const bool *)field);
    case SHD_KIND_REAL_OR_NULL:
        if (*(const double *)field < 0) return json_null();
        return json_real(*(const double *)field);
    case SHD_KIND_REAL: return json_real(*(const double *)field);
    case SHD_KIND_PAIR:
        return json_pack("[f,f]", ((const shd_job_pair *)field)->at[0], ((const shd_job_pair *)field)->at[1]);
    case SHD_KIND_INTS: return integers_json(field);
    case SHD_KIND_CHOICE: return json_string(key->words[*(const int32_t *)field]);
    case SHD_KIND_WORDS_OF:
    case SHD_KIND_TEXTS: return texts_json(field);
    case SHD_KIND_WORD_OR_TEXTS:
        return selection->texts.items ? texts_json(&selection->texts) : json_string(key->words[selection->word]);
    case SHD_KIND_GROUPS: return groups_json(field);
    case SHD_KIND_WORD_OR_PATH: return source_json(key, field);
    case SHD_KIND_SOURCES:
    case SHD_KIND_SOURCES_OR_NULL: return shd_job_sources_json(field);
    case SHD_KIND_NAME:
    case SHD_KIND_TEXT:
    case SHD_KIND_PATH:
    case SHD_KIND_PATH_OR_NULL: memcpy(&text, field, sizeof text); return text ? json_string(text) : json_null();
    case SHD_KIND_INT:
    case SHD_KIND_INT_OR_AUTO:
    case SHD_KIND_INT_OR_NULL:
    case SHD_KIND_SIGNED_OR_NULL: memcpy(&integer, field, sizeof integer); break;
    }
    if (key->kind == SHD_KIND_INT_OR_AUTO && integer == 0) return json_string("auto");
    if (key->kind == SHD_KIND_INT_OR_NULL && integer < 0) return json_null();
    if (key->kind == SHD_KIND_SIGNED_OR_NULL && integer == INT64_MIN) return json_null();
    return json_integer(integer);
}

/* The object of a section, made when it is missing; NULL when memory is out. Borrowed from `root`. */
static json_t *open_section(json_t *root, const char *path) {
    json_t *at = root;
    while (at && *path) {
        char name[64];
        size_t length = strcspn(path, ".");
        snprintf(name, sizeof name, "%.*s", (int)length, path);
        json_t *inner = json_object_get(at, name);
        if (!inner) {
            inner = json_object();
            if (json_object_set_new(at, name, inner) != 0) inner = NULL;
        }
        at = inner;
        path += length + (path[length] == '.');
    }
    return at;
}

static json_t *job_json(const shd_job *job) {
    int32_t count;
    const shd_job_key *keys = shd_job_keys(&count);
    json_t *root = json_object();
    bool good = root != NULL;
    for (int32_t i = 0; good && i < count; i++) {
        if (!shd_job_has(job, keys[i].path)) continue;
        json_t *section = open_section(root, keys[i].section);
        good = section && json_object_set_new(section, keys[i].name, value_json(job, &keys[i])) == 0;
    }
    if (good) return root;
    json_decref(root);
    return NULL;
}

/* jansson allocates with malloc; the caller's copy is one of ours. */
static char *dump(const json_t *value, size_t flags) {
    size_t bytes = json_dumpb(value, NULL, 0, flags);
    char *text = bytes ? shd_alloc(bytes + 1, 1) : NULL;
    if (text) json_dumpb(value, text, bytes, flags);
    return text;
}

void shd_job_text_free(char *text) { shd_free(text); }

sherd_status shd_job_resolved_json(const shd_job *job, char **out) {
    json_t *root = job_json(job);
    char *text = root ? dump(root, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(root);
    if (!text) return shd_fail(SHERD_MEMORY, "%s: out of memory", job->path);
    *out = text;
    return SHERD_OK;
}

/* --- for people --------------------------------------------------------------------------------------------------- */

/* A value as it would stand in a job file; texts without quotes. */
static char *value_text(const shd_job *job, const shd_job_key *key) {
    json_t *value = value_json(job, key);
    char *text = NULL;
    if (json_is_string(value))
        text = shd_strdup(json_string_value(value));
    else if (value)
        text = dump(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
    json_decref(value);
    return text;
}

static const char *default_text(const shd_job_key *key) {
    return key->required ? "required" : key->fallback ? key->fallback : key->computed;
}

/* "(job.yaml:12)", "(--set train.steps=5)", "(default)". */
static void origin_text(const shd_job *job, int32_t index, char *text, size_t bytes) {
    int32_t count;
    const shd_job_key *key = &shd_job_keys(&count)[index];
    const shd_yaml_place *place = job ? &job->origins[index].place : NULL;
    if (place && place->source && place->line > 0)
        snprintf(text, bytes, "%s:%d", place->source, place->line);
    else if (place && place->source)
        snprintf(text, bytes, "%s", place->source);
    else
        snprintf(text, bytes, "%s", key->required ? "required" : key->fallback ? "default" : "default, computed");
}

static void explain_group_keys(shd_text *out) {
    int32_t count;
    const shd_job_key *keys = shd_job_group_keys(&count);
    char expected[SHD_JOB_TEXT_BYTES];
    for (int32_t i = 0; i < count; i++) {
        shd_job_expected(&keys[i], expected);
        shd_text_add(out, "      %s: %s, %s%s; %s\n", keys[i].name, expected, keys[i].required ? "" : "default ",
                     default_text(&keys[i]), keys[i].help);
    }
}

/* "; llama only", or "". */
static void families_text(const shd_job_key *key, char text[SHD_JOB_TEXT_BYTES]) {
    char families[SHD_JOB_TEXT_BYTES];
    shd_job_families_text(key->path, families);
    snprintf(text, SHD_JOB_TEXT_BYTES, "%s%s%s", *families ? "; " : "", families, *families ? " only" : "");
}

/* Two spaces for each section that something stands in. */
static const char *indent_of(const char *section) { return !*section ? "" : strchr(section, '.') ? "    " : "  "; }

static void explain_key(shd_text *out, const shd_job *job, int32_t index) {
    int32_t count;
    const shd_job_key *key = &shd_job_keys(&count)[index];
    bool unused = job && !shd_job_has(job, key->path);
    char expected[SHD_JOB_TEXT_BYTES], origin[SHD_JOB_TEXT_BYTES], families[SHD_JOB_TEXT_BYTES];
    shd_job_expected(key, expected);
    families_text(key, families);
    origin_text(job, index, origin, sizeof origin);
    if (unused) snprintf(origin, sizeof origin, "not in %s", shd_job_word("model.family", (int32_t)job->model.family));
    char *value = unused ? shd_strdup("none") : job ? value_text(job, key) : NULL;
    if (job && !value) out->failed = true;
    shd_text_add(out, "%s%s: %s  (%s)\n", indent_of(key->section), key->name, value ? value : default_text(key),
                 origin);
    shd_text_add(out, "%s      %s%s%s; %s%s\n", strchr(key->section, '.') ? "  " : "", expected,
                 *key->unit ? ", in " : "", key->unit, key->help, families);
    shd_free(value);
    if (key->kind == SHD_KIND_GROUPS) explain_group_keys(out);
}

static void explain_section(shd_text *out, const shd_job_section *section) {
    const char *dot = strchr(section->name, '.');
    shd_text_add(out, "\n%s%s:  # %s\n", dot ? "  " : "", dot ? dot + 1 : section->name, section->about);
}

sherd_status shd_job_explain(const shd_job *job, char **out) {
    int32_t count;
    const shd_job_key *keys = shd_job_keys(&count);
    shd_text text = {0};
    for (int32_t i = 0; i < count; i++) {
        int32_t section_count, section = shd_job_find_section(keys[i].section);
        if (section >= 0 && strcmp(keys[i].section, keys[i - 1].section) != 0)
            explain_section(&text, &shd_job_sections(&section_count)[section]);
        explain_key(&text, job, i);
    }
    return shd_text_finish(&text, out);
}

/* --- docs/JOB.md -------------------------------------------------------------------------------------------------- */

static void document_key(shd_text *out, const shd_job_key *key) {
    char expected[SHD_JOB_TEXT_BYTES], families[SHD_JOB_TEXT_BYTES];
    shd_job_expected(key, expected);
    families_text(key, families);
    const char *tick = key->fallback ? "`" : "";
    shd_text_add(out, "| `%s` | %s%s%s | %s%s%s | %s%s |\n", key->name, expected, *key->unit ? ", in " : "", key->unit,
                 tick, default_text(key), tick, key->help, families);
}

static const char *const document_head = "| key | value | default | meaning |\n| --- | --- | --- | --- |\n";

static void document_group_keys(shd_text *out) {
    int32_t count;
    const shd_job_key *keys = shd_job_group_keys(&count);
    shd_text_add(out, "\nA group of `groups`:\n\n%s", document_head);
    for (int32_t i = 0; i < count; i++) document_key(out, &keys[i]);
}

sherd_status shd_job_document(char **out) {
    int32_t count, section_count;
    const shd_job_key *keys = shd_job_keys(&count);
    const shd_job_section *sections = shd_job_sections(&section_count);
    shd_text text = {0};
    shd_text_add(&text,
                 "# The job file\n\n"
                 "<!-- Generated from io/schema.h by `ninja -C build docs`; a test compares the two. -->\n\n"
                 "A job is one YAML document: sections of keys, all listed here, nothing else is accepted. Scalars are "
                 "those of YAML 1.2's core\n"
                 "schema, strictly: `2e-5` is a number, `1e3` is no whole number, `08`, `0x10` and `1:30` are none at "
                 "all, `no` is no boolean.\n"
                 "`--set key.path=value` sets a key on the command line, the value as after a colon: `--set "
                 "optimizer.betas='[0.9, 0.99]'`.\n\n"
                 "Paths are relative to the job file, in `--set` to the working directory. `sherd train JOB.yaml "
                 "--explain` shows every key with\n"
                 "its value and where that comes from.\n\n%s",
                 document_head);
    for (int32_t i = 0; i < count; i++) {
        int32_t section = shd_job_find_section(keys[i].section);
        if (section >= 0 && strcmp(keys[i].section, keys[i - 1].section) != 0)
            shd_text_add(&text, "\n## %s: %s\n\n%s", sections[section].name, sections[section].about, document_head);
        document_key(&text, &keys[i]);
        /* It is the last one of its section. */
        if (keys[i].kind == SHD_KIND_GROUPS) document_group_keys(&text);
    }
    return shd_text_finish(&text, out);
}
