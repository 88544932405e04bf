#include "io/job_keys.h"

#include "io/edit_distance.h"
#include "runtime/base/arith.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

/* --- the tables --------------------------------------------------------------------------------------------------- */

#define WORD(enumerator, word) [enumerator] = word,
#define WORD_LIST(name)        static const char *const words_##name[] = {SHD_WORDS_##name(WORD) NULL};
WORD_LIST(FAMILY)
WORD_LIST(ACTIVATION)
WORD_LIST(LOSS)
WORD_LIST(INIT)
WORD_LIST(FORMAT)
WORD_LIST(PRECISION)
WORD_LIST(REDUCE)
WORD_LIST(RECOMPUTE)
WORD_LIST(SUM_ORDER)
WORD_LIST(OPTIMIZER)
WORD_LIST(ADJUST_LR)
WORD_LIST(MEMBER)
WORD_LIST(SCHEDULE)
WORD_LIST(DECAY)
WORD_LIST(STATES)
WORD_LIST(GATHER)
WORD_LIST(RESUME)
WORD_LIST(DESPITE)
WORD_LIST(ON_ERROR)
WORD_LIST(IF_BUSY)
WORD_LIST(NONFINITE)
WORD_LIST(OUTLIER)
WORD_LIST(DEVICE)
WORD_LIST(COMM)

/* The columns of a row, as initialisers of shd_job_key. */
#define REQUIRED           .required = true
#define DEFAULT(text)      .fallback = text
#define COMPUTED(text)     .computed = text
#define ANY                .words = NULL
#define INTS(least, most)  .low = (least), .high = (most)
#define REALS(least, most) .real_low = (least), .real_high = (most)
#define ABOVE(least)       .real_low = (least), .real_high = DBL_MAX, .low_open = true
#define BELOW(least, most) .real_low = (least), .real_high = (most), .high_open = true
#define UP_TO(least, most) .real_low = (least), .real_high = (most), .low_open = true
#define WORDS(list)        .words = words_##list
#define PLACE(section_name, key_path, owner, field, key_name, key_kind)                                                \
    .section = section_name, .name = #key_name, .path = key_path, .kind = SHD_KIND_##key_kind,                         \
    .offset = offsetof(owner, field)
#define ROW(part, key_name, type, key_kind, fallback_column, range, key_unit, key_help)                                \
    {PLACE(#part, #part "." #key_name, shd_job, part.key_name, key_name, key_kind), fallback_column, range,            \
     .unit = key_unit, .help = key_help},
#define TOP_ROW(part, key_name, type, key_kind, fallback_column, range, key_unit, key_help)                            \
    {PLACE("", #key_name, shd_job, part.key_name, key_name, key_kind), fallback_column, range, .unit = key_unit,       \
     .help = key_help},
#define GROUP_ROW(part, key_name, type, key_kind, fallback_column, range, key_unit, key_help)                          \
    {PLACE("optimizer.groups", "optimizer.groups." #key_name, sherd_optimizer_group, key_name, key_name, key_kind),    \
     fallback_column, range, .unit = key_unit, .help = key_help},
#define GROUP_FIELD(part, key_name, type, key_kind, fallback_column, range, key_unit, key_help)                        \
    _Static_assert(_Generic(((sherd_optimizer_group *)NULL)->key_name, type : true), "the row has the field's type");
#define SECTION_ROWS(section, rows, about)             rows(ROW)
#define SECTION(section, rows, about_text)             {.name = #section, .about = about_text},
#define NESTED_SECTION(field, path, rows, about_text)  {.name = path, .about = about_text},
#define LOSS_SCALE_ROWS(field, path, rows, about_text) rows(LOSS_SCALE_ROW)
#define LOSS_SCALE_ROW(part, key_name, type, key_kind, fallback_column, range, key_unit, key_help)                     \
    {PLACE("train.loss_scale", "train.loss_scale." #key_name, shd_job, part.key_name, key_name, key_kind),             \
     fallback_column, range, .unit = key_unit, .help = key_help},

static const shd_job_key keys[] = {SHD_JOB_TOP(TOP_ROW) SHD_JOB_SECTIONS(SECTION_ROWS, LOSS_SCALE_ROWS)};
static const shd_job_key group_keys[] = {SHD_JOB_GROUP(GROUP_ROW)};
SHD_JOB_GROUP(GROUP_FIELD)
static const shd_job_section sections[] = {SHD_JOB_SECTIONS(SECTION, NESTED_SECTION)};

enum {
    KEY_COUNT = sizeof keys / sizeof *keys,
    GROUP_KEY_COUNT = sizeof group_keys / sizeof *group_keys,
    SECTION_COUNT = sizeof sections / sizeof *sections
};

const shd_job_key *shd_job_keys(int32_t *count) {
    *count = KEY_COUNT;
    return keys;
}

const shd_job_key *shd_job_group_keys(int32_t *count) {
    *count = GROUP_KEY_COUNT;
    return group_keys;
}

const shd_job_section *shd_job_sections(int32_t *count) {
    *count = SECTION_COUNT;
    return sections;
}

int32_t shd_job_find_key(const char *section, const char *name) {
    for (int32_t i = 0; i < KEY_COUNT; i++)
        if (strcmp(keys[i].section, section ? section : "") == 0 && strcmp(keys[i].name, name) == 0) return i;
    return -1;
}

int32_t shd_job_find_path(const char *path) {
    for (int32_t i = 0; i < KEY_COUNT; i++)
        if (strcmp(keys[i].path, path) == 0) return i;
    return -1;
}

int32_t shd_job_find_section(const char *name) {
    for (int32_t i = 0; i < SECTION_COUNT; i++)
        if (strcmp(sections[i].name, name) == 0) return i;
    return -1;
}

int32_t shd_job_find_inner(const char *outer, const char *name) {
    char path[64];
    if (strchr(name, '.')) return -1; /* sections inside others are written inside them */
    snprintf(path, sizeof path, "%s%s%s", outer, *outer ? "." : "", name);
    return strlen(path) < sizeof path - 1 ? shd_job_find_section(path) : -1;
}

const char *shd_job_word(const char *key_path, int32_t value) {
    int32_t index = shd_job_find_path(key_path);
    if (index < 0 || !keys[index].words) return "";
    for (int32_t i = 0; keys[index].words[i]; i++)
        if (i == value) return keys[index].words[i];
    return "";
}

const shd_job_origin *shd_job_origin_of(const shd_job *job, const char *key_path) {
    return &job->origins[shd_job_find_path(key_path)];
}

/* --- what a key may be -------------------------------------------------------------------------------------------- */

static void append(char text[SHD_JOB_TEXT_BYTES], const char *more) {
    size_t used = strlen(text);
    snprintf(text + used, SHD_JOB_TEXT_BYTES - used, "%s", more);
}

/* The names of a section's keys: "a, b, c". */
static void append_names(char text[SHD_JOB_TEXT_BYTES], const shd_job_key *table, int32_t count, const char *section) {
    bool first = true;
    for (int32_t i = 0; i < count; i++) {
        if (strcmp(table[i].section, section) != 0) continue;
        append(text, first ? "" : ", ");
        append(text, table[i].name);
        first = false;
    }
}

/* "a, b or ", before what else is possible. */
static void append_words_or(char text[SHD_JOB_TEXT_BYTES], const char *const *words) {
    for (int32_t i = 0; words[i]; i++) {
        append(text, words[i]);
        append(text, words[i + 1] ? ", " : " or ");
    }
}

/* "a", "a or b", "a, b or c". */
static void append_words(char text[SHD_JOB_TEXT_BYTES], const char *const *words) {
    for (int32_t i = 0; words[i]; i++) {
        if (i > 0) append(text, words[i + 1] ? ", " : " or ");
        append(text, words[i]);
    }
}

static void append_int_range(char text[SHD_JOB_TEXT_BYTES], const shd_job_key *key) {
    size_t used = strlen(text);
    snprintf(text + used, SHD_JOB_TEXT_BYTES - used, "a whole number from %lld to %lld", (long long)key->low,
             (long long)key->high);
}

static void append_real_range(char text[SHD_JOB_TEXT_BYTES], const shd_job_key *key) {
    size_t used = strlen(text);
    char *at = text + used;
    size_t left = SHD_JOB_TEXT_BYTES - used;
    if (key->high_open)
        snprintf(at, left, "from %g up to, but not, %g", key->real_low, key->real_high);
    else if (key->low_open && key->real_high < DBL_MAX)
        snprintf(at, left, "above %g, at most %g", key->real_low, key->real_high);
    else if (key->low_open)
        snprintf(at, left, "above %g", key->real_low);
    else if (key->real_high < DBL_MAX)
        snprintf(at, left, "from %g to %g", key->real_low, key->real_high);
    else
        snprintf(at, left, "from %g on", key->real_low);
}

void shd_job_expected(const shd_job_key *key, char text[SHD_JOB_TEXT_BYTES]) {
    text[0] = 0;
    switch (key->kind) {
    case SHD_KIND_NAME: append(text, "a text without '/'"); break;
    case SHD_KIND_BOOL: append(text, "true or false"); break;
    case SHD_KIND_INT: append_int_range(text, key); break;
    case SHD_KIND_INTS:
        append(text, "a list, each ");
        append_int_range(text, key);
        break;
    case SHD_KIND_INT_OR_AUTO:
        append(text, "auto or ");
        append_int_range(text, key);
        break;
    case SHD_KIND_INT_OR_NULL:
    case SHD_KIND_SIGNED_OR_NULL:
        append(text, "null or ");
        append_int_range(text, key);
        break;
    case SHD_KIND_REAL_OR_NULL:
    case SHD_KIND_REAL:
        append(text, key->kind == SHD_KIND_REAL ? "a number " : "null or a number ");
        append_real_range(text, key);
        break;
    case SHD_KIND_PAIR:
        append(text, "a list of two numbers, each ");
        append_real_range(text, key);
        break;
    case SHD_KIND_CHOICE: append_words(text, key->words); break;
    case SHD_KIND_TEXT: append(text, "a text"); break;
    case SHD_KIND_TEXTS: append(text, "a list of texts"); break;
    case SHD_KIND_WORDS_OF:
        append(text, "a list of ");
        append_words(text, key->words);
        break;
    case SHD_KIND_WORD_OR_TEXTS:
        append_words_or(text, key->words);
        append(text, "a list of texts");
        break;
    case SHD_KIND_GROUPS:
        append(text, "a list of groups, each with the keys ");
        append_names(text, group_keys, GROUP_KEY_COUNT, "optimizer.groups");
        break;
    case SHD_KIND_PATH: append(text, "a path"); break;
    case SHD_KIND_PATH_OR_NULL: append(text, "null or a path"); break;
    case SHD_KIND_WORD_OR_PATH:
        append_words_or(text, key->words);
        append(text, "a path");
        break;
    case SHD_KIND_SOURCES:
        append(text, "a path, a glob, a list of them, {inputs: …, targets: …}, or a list of {path: …, weight: …}");
        break;
    case SHD_KIND_SOURCES_OR_NULL:
        append(text, "null, a path, a glob, a list of them, or {inputs: …, targets: …}");
        break;
    }
}

/* --- near misses -------------------------------------------------------------------------------------------------- */

/* Names as near as this are likely meant. */
static int32_t tolerance(const char *name) { return (int32_t)shd_max(1, (int64_t)strlen(name) / 3); }

/* The key of `section` that is nearest to `name` and nearer than *distance, which becomes how near; else NULL. */
static const char *find_nearest(const shd_job_key *table, int32_t count, const char *section, const char *name,
                                int32_t *distance) {
    const char *nearest = NULL;
    for (int32_t i = 0; i < count; i++) {
        if (strcmp(table[i].section, section) != 0) continue;
        int32_t here = shd_edit_distance(name, table[i].name);
        if (here >= *distance) continue;
        *distance = here;
        nearest = table[i].name;
    }
    return nearest;
}

static void append_guess(char text[SHD_JOB_TEXT_BYTES], const char *guess) {
    if (!guess) return;
    append(text, "did you mean '");
    append(text, guess);
    append(text, "'? ");
}

/* The name under which the section at `path` stands in `outer`; NULL when it does not. */
static const char *inner_name(const char *path, const char *outer) {
    size_t length = strlen(outer);
    if (length == 0) return strchr(path, '.') ? NULL : path;
    return strncmp(path, outer, length) == 0 && path[length] == '.' ? path + length + 1 : NULL;
}

void shd_job_suggest(const char *section, const char *name, char text[SHD_JOB_TEXT_BYTES]) {
    const char *elsewhere = NULL;
    int32_t best = tolerance(name) + 1;
    bool top = *section == 0;
    const char *nearest = find_nearest(keys, KEY_COUNT, section, name, &best);
    for (int32_t i = 0; i < KEY_COUNT; i++)
        if (strcmp(keys[i].section, section) != 0 && shd_edit_distance(name, keys[i].name) == 0)
            elsewhere = keys[i].path;
    for (int32_t i = 0; i < SECTION_COUNT; i++) {
        const char *inner = inner_name(sections[i].name, section);
        int32_t distance = shd_edit_distance(name, inner ? inner : sections[i].name);
        if (inner && distance < best) {
            best = distance;
            nearest = inner;
        } else if (!inner && distance == 0) {
            elsewhere = sections[i].name;
        }
    }
    text[0] = 0;
    append_guess(text, elsewhere ? elsewhere : nearest);
    append(text, top ? "the top level has" : section);
    append(text, top ? " " : " has ");
    append_names(text, keys, KEY_COUNT, section);
    for (int32_t i = 0; i < SECTION_COUNT; i++) {
        const char *inner = inner_name(sections[i].name, section);
        if (!inner) continue;
        append(text, ", ");
        append(text, inner);
    }
}

void shd_job_suggest_in_group(const char *name, char text[SHD_JOB_TEXT_BYTES]) {
    int32_t best = tolerance(name) + 1;
    text[0] = 0;
    append_guess(text, find_nearest(group_keys, GROUP_KEY_COUNT, "optimizer.groups", name, &best));
    append(text, "a group has ");
    append_names(text, group_keys, GROUP_KEY_COUNT, "optimizer.groups");
}
