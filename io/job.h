/* A job: everything `sherd train` is told, from a YAML file and settings on the command line.
 *
 * A loaded job is complete: every key has its value, every path is absolute, every value is in its range, and keys that
 * exclude each other are refused. What only the model, the optimizer or the session can judge (widths that do not
 * divide, a schedule that rises) they refuse when they are made; shd_job_fail_within gives their causes the place.
 * Whatever is wrong is refused with `file:line:column: key.path: what is wrong; what would be right`. */
#ifndef SHD_IO_JOB_H
#define SHD_IO_JOB_H

#include "io/schema.h"

#include <sherd/options.h>
#include <sherd/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHD_JOB_ENUMERATOR(enumerator, word) enumerator,
typedef enum shd_job_family { SHD_WORDS_FAMILY(SHD_JOB_ENUMERATOR) } shd_job_family;
typedef enum shd_job_activation { SHD_WORDS_ACTIVATION(SHD_JOB_ENUMERATOR) } shd_job_activation;
typedef enum shd_job_loss { SHD_WORDS_LOSS(SHD_JOB_ENUMERATOR) } shd_job_loss;
typedef enum shd_job_init { SHD_WORDS_INIT(SHD_JOB_ENUMERATOR) } shd_job_init;
typedef enum shd_job_format { SHD_WORDS_FORMAT(SHD_JOB_ENUMERATOR) } shd_job_format;
typedef enum shd_job_sum_order { SHD_WORDS_SUM_ORDER(SHD_JOB_ENUMERATOR) } shd_job_sum_order;
typedef enum shd_job_states { SHD_WORDS_STATES(SHD_JOB_ENUMERATOR) } shd_job_states;
typedef enum shd_job_resume { SHD_WORDS_RESUME(SHD_JOB_ENUMERATOR) } shd_job_resume;
typedef enum shd_job_on_error { SHD_WORDS_ON_ERROR(SHD_JOB_ENUMERATOR) } shd_job_on_error;
typedef enum shd_job_if_busy { SHD_WORDS_IF_BUSY(SHD_JOB_ENUMERATOR) } shd_job_if_busy;
typedef enum shd_job_despite { SHD_WORDS_DESPITE(SHD_JOB_ENUMERATOR) } shd_job_despite;
typedef enum shd_job_on_nonfinite { SHD_WORDS_NONFINITE(SHD_JOB_ENUMERATOR) } shd_job_on_nonfinite;
typedef enum shd_job_on_outlier { SHD_WORDS_OUTLIER(SHD_JOB_ENUMERATOR) } shd_job_on_outlier;
typedef enum shd_job_device { SHD_WORDS_DEVICE(SHD_JOB_ENUMERATOR) } shd_job_device;
typedef enum shd_job_comm { SHD_WORDS_COMM(SHD_JOB_ENUMERATOR) } shd_job_comm;
#undef SHD_JOB_ENUMERATOR

/* Two numbers, a list of whole numbers, a list of texts, a word of the key's list or a path, a word or a list of texts, a list of groups. */
typedef struct shd_job_pair {
    double at[2];
} shd_job_pair;
typedef struct shd_job_integers {
    const int64_t *items;
    int32_t count;
} shd_job_integers;
typedef struct shd_job_texts {
    const char *const *items;
    int32_t count;
} shd_job_texts;
/* Where sequences come from: files and globs, and how often against the other sources. */
enum { SHD_JOB_SOURCES = 64 };
typedef struct shd_job_data_source {
    const char **paths; /* of tokens, or of inputs */
    int32_t path_count;
    bool listed;               /* the paths were written as a list */
    const char **target_paths; /* of targets, where it was written {inputs: …, targets: …}; else NULL */
    int32_t target_path_count;
    bool targets_listed;
    double weight; /* 1 where none is written */
} shd_job_data_source;
typedef struct shd_job_sources {
    const shd_job_data_source *items; /* 1 to SHD_JOB_SOURCES; 0 where the key is null */
    int32_t count;
    bool weighted; /* written as a list of {path, weight} */
} shd_job_sources;
typedef struct shd_job_source {
    const char *path; /* NULL: `word` holds */
    int32_t word;     /* shd_job_init or shd_job_resume */
} shd_job_source;
typedef struct shd_job_selection {
    shd_job_texts texts; /* items NULL: `word` holds */
    int32_t word;        /* sherd_decay */
} shd_job_selection;
typedef struct shd_job_groups {
    const sherd_optimizer_group *items;
    int32_t count;
} shd_job_groups;

/* Every key of the schema as a field, `job->section.key` (of a section inside another `job->loss_scale.key`); `auto` of a
 * whole number is 0, `null` of one is -1, of one that may be negative INT64_MIN, of a path NULL.
 * Owns: all texts belong to the job. */
typedef struct shd_job {
    const char *path; /* the job file as given */
    const char *text; /* what it holds, text_bytes of it */
    size_t text_bytes;
#define SHD_JOB_FIELD(section, key, type, kind, fallback, range, unit, help) type key;
#define SHD_JOB_STRUCT(section, rows, about)                                                                           \
    struct {                                                                                                           \
        rows(SHD_JOB_FIELD)                                                                                            \
    } section;
    SHD_JOB_STRUCT(top, SHD_JOB_TOP, "")
#define SHD_JOB_NESTED_STRUCT(field, path, rows, about) SHD_JOB_STRUCT(field, rows, about)
    SHD_JOB_SECTIONS(SHD_JOB_STRUCT, SHD_JOB_NESTED_STRUCT)
#undef SHD_JOB_NESTED_STRUCT
#undef SHD_JOB_STRUCT
#undef SHD_JOB_FIELD
    struct shd_job_origin *origins; /* where each key was set; job_keys.h */
    struct shd_keep *keep;          /* backs every text */
} shd_job;

/* A key set outside the file. `text` is "key.path=value", the value in YAML as after a colon. `source` is what the user
 * wrote, for messages ("-n 3"); NULL: "--set " and the text. */
typedef struct shd_job_setting {
    const char *source, *text;
} shd_job_setting;

/* Reads the job file, then the settings in order, later ones winning. Paths in the file are relative to its folder,
 * paths in settings to the working directory. `run.ranks` is what global_batch is checked against: pass the number of
 * ranks as a setting when it comes from elsewhere.
 * Owns: destroy *out with shd_job_destroy.
 * Fails: CONFIG (the user's mistake, with its place), IO (the file cannot be read), MEMORY. */
sherd_status shd_job_load(const char *path, const shd_job_setting *settings, int32_t setting_count, shd_job **out);
/* The same of a file that was read already: `text` is what it held then. `path` only names it, and the folder that its
 * paths are relative to. Fails: CONFIG, MEMORY. */
sherd_status shd_job_load_text(const char *path, const char *text, size_t text_bytes, const shd_job_setting *settings,
                               int32_t setting_count, shd_job **out);
/* Reads the job back from its resolved form (a checkpoint's note has it), which is a job file too. `source` names it in
 * messages.
 * Fails: CONFIG, MEMORY. */
sherd_status shd_job_from_json(const char *source, const char *text, shd_job **out);
/* Accepts NULL. */
void shd_job_destroy(shd_job *job);

/* Puts before the thread's last cause the place where the key was set that the cause begins with ("shard.prefetch is
 * …"), or the job file's name when it begins with none: for checks by those who know keys and no files. Returns
 * `status`. */
sherd_status shd_job_fail_within(const shd_job *job, sherd_status status);

/* Whether checkpoint.resume_despite names it. */
bool shd_job_resumes_despite(const shd_job *job, shd_job_despite what);

/* Tokens that one optimizer step sees, of mlp samples: these words, "tokens" or "samples". */
int64_t shd_job_step_tokens(const shd_job *job);
const char *shd_job_items(const shd_job *job);

/* The word of a choice, e.g. shd_job_word("optimizer.name", job->optimizer.name); "" when there is none. */
const char *shd_job_word(const char *key_path, int32_t value);

/* Releases a text that a function below hands out; accepts NULL. For the program, which knows no shd_free. */
void shd_job_text_free(char *text);

/* The job as resolved, one JSON object of sections with every key that its model has. *out: release with
 * shd_job_text_free. Fails: MEMORY. */
sherd_status shd_job_resolved_json(const shd_job *job, char **out);

/* Every key with its value in `job` and where that comes from, what it may be, and its help; NULL job: the defaults.
 * *out: release with shd_job_text_free. Fails: MEMORY. */
sherd_status shd_job_explain(const shd_job *job, char **out);

/* docs/JOB.md. *out: release with shd_job_text_free. Fails: MEMORY. */
sherd_status shd_job_document(char **out);

#endif
