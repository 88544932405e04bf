/* The keys of a job as a table, made from the rows of schema.h, and what is done with one of them. */
#ifndef SHD_IO_JOB_KEYS_H
#define SHD_IO_JOB_KEYS_H

#include "io/job.h"
#include "io/yaml_tree.h"

#include <stddef.h>

typedef enum shd_job_kind {
    SHD_KIND_NAME,           /* const char *: a text that can name a folder */
    SHD_KIND_BOOL,           /* bool */
    SHD_KIND_INT,            /* int64_t */
    SHD_KIND_INTS,           /* shd_job_integers: a list of whole numbers */
    SHD_KIND_INT_OR_AUTO,    /* int64_t, `auto` is 0 */
    SHD_KIND_INT_OR_NULL,    /* int64_t, null is -1 */
    SHD_KIND_SIGNED_OR_NULL, /* int64_t, null is INT64_MIN */
    SHD_KIND_REAL,           /* double, finite */
    SHD_KIND_REAL_OR_NULL,   /* double, null is -1 */
    SHD_KIND_PAIR,           /* shd_job_pair: [number, number] */
    SHD_KIND_CHOICE,         /* an enum: one of the key's words */
    SHD_KIND_TEXT,           /* const char * */
    SHD_KIND_TEXTS,          /* shd_job_texts: a list of texts */
    SHD_KIND_WORDS_OF,       /* shd_job_texts: a list of some of the key's words */
    SHD_KIND_WORD_OR_TEXTS,  /* shd_job_selection */
    SHD_KIND_GROUPS,         /* shd_job_groups: a list of sections with the keys of SHD_JOB_GROUP */
    SHD_KIND_PATH,           /* const char * */
    SHD_KIND_PATH_OR_NULL,   /* const char * */
    SHD_KIND_WORD_OR_PATH,   /* shd_job_source */
    SHD_KIND_SOURCES,        /* shd_job_sources */
    SHD_KIND_SOURCES_OR_NULL /* shd_job_sources of one source; null has none */
} shd_job_kind;

typedef struct shd_job_key {
    const char *section; /* "" at the top level */
    const char *name;
    const char *path; /* "section.name", or the name at the top level */
    shd_job_kind kind;
    size_t offset;        /* of the field in shd_job, for keys of a group in sherd_optimizer_group */
    bool required;        /* has no default */
    const char *fallback; /* the default as in a job file; NULL when required or computed */
    const char *computed; /* what it is computed from when not set; NULL otherwise */
    int64_t low, high;    /* INT kinds */
    double real_low, real_high;
    bool low_open, high_open;
    const char *const *words; /* ends with NULL; NULL where there are none */
    const char *unit, *help;
} shd_job_key;

typedef struct shd_job_section {
    const char *name; /* of a section inside another "outer.inner" */
    const char *about;
} shd_job_section;

/* The tables, in the order of the schema; keys of a group are no keys of the job. */
const shd_job_key *shd_job_keys(int32_t *count);
const shd_job_key *shd_job_group_keys(int32_t *count);
const shd_job_section *shd_job_sections(int32_t *count);

/* The index of a key or section, -1 when there is none. A NULL or "" section is the top level. */
int32_t shd_job_find_key(const char *section, const char *name);
int32_t shd_job_find_path(const char *path);
int32_t shd_job_find_section(const char *name);
/* The section `name` inside the section `outer`, "" being the top level. */
int32_t shd_job_find_inner(const char *outer, const char *name);

enum { SHD_JOB_TEXT_BYTES = 512 };

/* What the key may be, for people: "a whole number from 1 to 64". */
void shd_job_expected(const shd_job_key *key, char text[SHD_JOB_TEXT_BYTES]);
/* What to write instead of an unknown `name` in `section`: a near key, the section it belongs to, and what is allowed
 * here. */
void shd_job_suggest(const char *section, const char *name, char text[SHD_JOB_TEXT_BYTES]);
/* The same inside a group. */
void shd_job_suggest_in_group(const char *name, char text[SHD_JOB_TEXT_BYTES]);

/* Where a key's value comes from: the place, and for paths in settings that they are relative to the working
 * directory. */
typedef struct shd_job_origin {
    shd_yaml_place place; /* of the value; source NULL: the default */
    bool from_setting;
} shd_job_origin;

/* Reads the value `node` into `field`, which is the key's. Fails: CONFIG (with the place), MEMORY. */
sherd_status shd_job_store(shd_job *job, const shd_job_key *key, const shd_yaml_node *node, void *field);
/* The same for keys of kind GROUPS. */
sherd_status shd_job_store_groups(shd_job *job, const shd_job_key *key, const shd_yaml_node *node,
                                  shd_job_groups *field);
/* The same for keys of kind SOURCES and SOURCES_OR_NULL; `node` is no null. */
sherd_status shd_job_store_sources(shd_job *job, const shd_job_key *key, const shd_yaml_node *node,
                                   shd_job_sources *field);
/* As in a job file, a new reference; NULL when memory is out. */
struct json_t *shd_job_sources_json(const shd_job_sources *sources);

/* Fills in COMPUTED defaults and makes every path absolute. Fails: MEMORY, IO (no working directory). */
sherd_status shd_job_complete(shd_job *job);

/* Refuses keys that exclude each other, and a global batch that cannot be split over the ranks. Fails: CONFIG. */
sherd_status shd_job_check(const shd_job *job);

/* False for a key that the job's model family does not have (model.rope_theta with gpt2). */
bool shd_job_has(const shd_job *job, const char *key_path);
/* The families that have the key, for people: "gpt2 or llama"; "" when all have. */
void shd_job_families_text(const char *key_path, char text[SHD_JOB_TEXT_BYTES]);
/* Refuses keys that were set and that the job's family does not have. Fails: CONFIG. */
sherd_status shd_job_check_family(const shd_job *job);

/* Where `key_path` was set, and whether it was. */
const shd_job_origin *shd_job_origin_of(const shd_job *job, const char *key_path);

#endif
