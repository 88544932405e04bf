#include "runtime/train/resume.h"

#include "io/checkpoint.h"
#include "io/job_keys.h"
#include "io/json.h"
#include "runtime/base/arith.h"
#include "runtime/base/log.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/train/job_setup.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- writing a note ----------------------------------------------------------------------------------------------- */

/* Adds a value to `object`, taking the reference, also when it fails. */
static bool add(json_t *object, const char *key, json_t *value) { return json_object_set_new(object, key, value) == 0; }

static json_t *sources_json(const shd_job *job, const shd_dataset *dataset) {
    json_t *list = json_array();
    bool good = list != NULL;
    for (int32_t i = 0; good && i < shd_dataset_source_count(dataset); i++) {
        shd_source_summary held = shd_dataset_source(dataset, i);
        json_t *source = json_object();
        good = source && add(source, "weight", json_real(job->data.train.items[i].weight)) &&
               add(source, "tokens", json_integer(held.token_count)) &&
               add(source, "fingerprint", shd_json_from_hash(held.fingerprint)) && json_array_append(list, source) == 0;
        json_decref(source);
    }
    if (good) return list;
    json_decref(list);
    return NULL;
}

static json_t *note_json(const shd_job *job, const char *job_text, const shd_dataset *dataset, int64_t sequence,
                         int64_t tokens_seen) {
    json_t *note = json_object(), *data = json_object();
    bool mixed = shd_dataset_source_count(dataset) > 1;
    bool good = note && data && add(data, "tokens", json_integer(shd_dataset_token_count(dataset))) &&
                add(data, "fingerprint", shd_json_from_hash(shd_dataset_fingerprint(dataset))) &&
                (!mixed || add(data, "sources", sources_json(job, dataset))) &&
                add(note, "job", json_loads(job_text, 0, NULL)) && add(note, "sequence", json_integer(sequence)) &&
                add(note, "tokens_seen", json_integer(tokens_seen)) && json_object_set(note, "data", data) == 0;
    json_decref(data);
    if (good) return note;
    json_decref(note);
    return NULL;
}

sherd_status shd_resume_note(const shd_job *job, const shd_dataset *dataset, int64_t sequence, int64_t tokens_seen,
                             char **out) {
    char *job_text;
    SHD_TRY(shd_job_resolved_json(job, &job_text));
    json_t *note = note_json(job, job_text, dataset, sequence, tokens_seen);
    shd_job_text_free(job_text);
    if (!note) return shd_fail(SHERD_MEMORY, "no memory for the note of a checkpoint");
    sherd_status status = shd_json_print(note, 0, out);
    json_decref(note);
    return status;
}

/* --- holding a note against the job ------------------------------------------------------------------------------- */

/* A key by its path, "section.key", "section.inner.key" or "key"; NULL when it is not there. */
static const json_t *at_path(const json_t *job, const char *path) {
    char section[64];
    const char *dot = strchr(path, '.');
    if (!dot) return json_object_get(job, path);
    snprintf(section, sizeof section, "%.*s", (int)(dot - path), path);
    return at_path(json_object_get(job, section), dot + 1);
}

/* A text with room for VALUE_BYTES, and how much was to be put there. */
typedef struct clipped {
    char *text;
    size_t length;
} clipped;

enum { VALUE_BYTES = 240 };

static int add_clipped(const char *piece, size_t bytes, void *user) {
    clipped *out = user;
    for (size_t i = 0; i < bytes && out->length + i + 1 < VALUE_BYTES; i++) out->text[out->length + i] = piece[i];
    out->length += bytes;
    return 0;
}

/* The value as JSON, cut with "…" where it is too long. */
static void value_text(const json_t *value, char text[VALUE_BYTES]) {
    static const char more[] = "…";
    clipped out = {.text = text};
    int failed = value ? json_dump_callback(value, add_clipped, &out, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9)) : -1;
    if (failed) {
        snprintf(text, VALUE_BYTES, "not set");
        return;
    }
    text[out.length < VALUE_BYTES ? out.length : VALUE_BYTES - 1] = 0;
    if (out.length < VALUE_BYTES) return;
    size_t end = VALUE_BYTES - sizeof more;
    while ((text[end] & 0xC0) == 0x80) end--; /* not inside a character */
    memcpy(text + end, more, sizeof more);
}

/* True for what may not change: the model (not where its first weights came from, nor how it is trained), seed and order
 * of data. */
static bool is_fixed(const char *path) {
    static const char *const fixed[] = {"data.shuffle",
                                        "data.ignored_token",
                                        "data.document_separator",
                                        "data.attend_across_documents",
                                        "data.ignored_label",
                                        "data.input_scale",
                                        "train.seed"};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        if (strcmp(path, fixed[i]) == 0) return true;
    return strncmp(path, "model.", 6) == 0 && strcmp(path, "model.init") != 0 && strcmp(path, "model.dropout") != 0;
}

/* True for what says where and how, not what is computed. */
static bool is_silent(const char *path) {
    return strncmp(path, "run.", 4) == 0 || strncmp(path, "log.", 4) == 0 || strncmp(path, "checkpoint.", 11) == 0;
}

/* True when `value` is the key's default: what a job meant when sherd did not have the key yet. */
static bool is_default(const char *path, const json_t *value) {
    int32_t count, index = shd_job_find_path(path);
    const char *fallback = index >= 0 ? shd_job_keys(&count)[index].fallback : NULL;
    char text[VALUE_BYTES];
    if (!fallback) return false;
    if (json_is_string(value)) return strcmp(json_string_value(value), fallback) == 0;
    value_text(value, text);
    return strcmp(text, fallback) == 0;
}

static sherd_status compare_key(const char *path, const json_t *then, const json_t *now, bool report) {
    char then_text[VALUE_BYTES], now_text[VALUE_BYTES];
    bool equal = then && now ? json_equal(then, now) : then == now;
    if (equal || is_silent(path) || (!then && is_default(path, now))) return SHERD_OK;
    value_text(then, then_text);
    value_text(now, now_text);
    if (is_fixed(path))
        return shd_fail(SHERD_DATA,
                        "%s was %s and is %s now; a run cannot go on with another one: set it back, or take another "
                        "checkpoint.dir, or "
                        "checkpoint.resume: never",
                        path, then_text, now_text);
    if (report) shd_log(SHERD_LOG_INFO, "resuming: %s was %s and is %s now", path, then_text, now_text);
    return SHERD_OK;
}

/* Every key that either job has in a section, "" being the whole job; `all` has the keys of both. */
static sherd_status compare_section(const char *section, const json_t *all, const json_t *then, const json_t *now,
                                    bool report) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)all, name, value) {
        char path[128];
        snprintf(path, sizeof path, "%s%s%s", section, *section ? "." : "", name);
        SHD_TRY(shd_job_find_section(path) >= 0 ? compare_section(path, value, then, now, report)
                                                : compare_key(path, at_path(then, path), at_path(now, path), report));
    }
    return SHERD_OK;
}

static sherd_status compare_keys(const json_t *then, const json_t *now, bool report) {
    json_t *all = json_deep_copy(now);
    if (!all) return shd_fail(SHERD_MEMORY, "no memory to compare jobs");
    sherd_status status = json_object_update_recursive(all, (json_t *)then) == 0
                              ? compare_section("", all, then, now, report)
                              : shd_fail(SHERD_MEMORY, "no memory to compare jobs");
    json_decref(all);
    return status;
}

/* The linear scaling rule: Goyal et al., "Accurate, large minibatch SGD", 2017. The square-root rule: Malladi et al.,
 * "On the SDEs and scaling rules for adaptive gradient algorithms", 2022. A learning rate that was changed with the batch
 * was thought about. */
static void hint_at_batch(const json_t *then, const shd_job *job) {
    double before = json_number_value(at_path(then, "train.global_batch"));
    double lr = job->optimizer.lr, ratio = (double)job->train.global_batch / before;
    if (!(before > 0) || ratio == 1 || json_number_value(at_path(then, "optimizer.lr")) != lr) return;
    char root[64] = "";
    if (job->optimizer.name != SHERD_SGD)
        snprintf(root, sizeof root, " (by the square-root rule, usual with %s, %.4g)",
                 shd_job_word("optimizer.name", (int32_t)job->optimizer.name), lr * sqrt(ratio));
    shd_log(SHERD_LOG_INFO,
            "resuming: a step sees %.4g times the sequences it saw; by the linear scaling rule optimizer.lr would be "
            "%.4g%s; it is %.4g, as before",
            ratio, lr * ratio, root, lr);
    if (job->optimizer.warmup_tokens > 0)
        shd_log(SHERD_LOG_INFO, "resuming: optimizer.warmup_tokens are the first %lld steps now",
                (long long)shd_div_ceil(job->optimizer.warmup_tokens, shd_job_step_tokens(job)));
}

static sherd_status compare_jobs(const json_t *note, const shd_job *job, bool report) {
    const json_t *then = json_object_get(note, "job");
    char *text;
    if (!json_is_object(then))
        return shd_fail(SHERD_DATA, "its note holds no job; it was not written by 'sherd train'");
    SHD_TRY(shd_job_resolved_json(job, &text));
    json_t *now = json_loads(text, 0, NULL);
    shd_job_text_free(text);
    sherd_status status = now ? compare_keys(then, now, report) : shd_fail(SHERD_MEMORY, "no memory to compare jobs");
    if (status == SHERD_OK && report) hint_at_batch(then, job);
    bool moved = now && !json_equal(at_path(then, "train.steps"), at_path(now, "train.steps"));
    bool follows = job->optimizer.schedule != SHERD_CONSTANT && job->optimizer.schedule != SHERD_INVERSE_SQRT;
    if (moved && follows && report && status == SHERD_OK)
        shd_log(SHERD_LOG_INFO, "resuming: optimizer.schedule: %s now runs to step %lld",
                shd_job_word("optimizer.schedule", (int32_t)job->optimizer.schedule), (long long)job->train.steps);
    json_decref(now);
    return status;
}

/* The first source of a mixture that is not as the note has it, or -1. */
static int32_t find_other_source(const json_t *list, const shd_job *job, const shd_dataset *dataset) {
    int32_t count = shd_dataset_source_count(dataset);
    for (int32_t i = 0; i < count; i++) {
        const json_t *source = json_array_get(list, (size_t)i);
        uint64_t then;
        bool same = shd_json_hash(source, "fingerprint", &then) == SHERD_OK &&
                    then == shd_dataset_source(dataset, i).fingerprint &&
                    json_number_value(json_object_get(source, "weight")) == job->data.train.items[i].weight;
        if (!same) return i;
    }
    return -1;
}

static sherd_status compare_data(const json_t *note, const shd_job *job, const shd_dataset *dataset) {
    const json_t *data = json_object_get(note, "data"), *sources = json_object_get(data, "sources");
    uint64_t then, now = shd_dataset_fingerprint(dataset);
    int64_t then_count, now_count = shd_dataset_token_count(dataset);
    SHD_TRY(shd_json_int(data, "tokens", 0, INT64_MAX, &then_count));
    SHD_TRY(shd_json_hash(data, "fingerprint", &then));
    if (then == now) return SHERD_OK;
    char then_text[VALUE_BYTES], now_text[VALUE_BYTES], which[48] = "";
    json_t *now_json = shd_job_sources_json(&job->data.train);
    value_text(at_path(json_object_get(note, "job"), "data.train"), then_text);
    value_text(now_json, now_text);
    json_decref(now_json);
    int32_t other = sources ? find_other_source(sources, job, dataset) : -1;
    if (other >= 0) snprintf(which, sizeof which, "; the first difference is in data.train[%d]", other);
    return shd_fail(SHERD_DATA,
                    "data.train has changed: it was %s with %lld tokens (fingerprint %016llx) and is %s with %lld "
                    "(%016llx)%s; set it back, or take another checkpoint.dir, or checkpoint.resume: never",
                    then_text, (long long)then_count, (unsigned long long)then, now_text, (long long)now_count,
                    (unsigned long long)now, which);
}

static sherd_status read_note(const json_t *note, const shd_job *job, const shd_dataset *dataset, bool report,
                              shd_resume *out) {
    SHD_TRY(shd_json_int(note, "sequence", 0, INT64_MAX, &out->sequence));
    SHD_TRY(shd_json_int(note, "tokens_seen", 0, INT64_MAX, &out->tokens_seen));
    SHD_TRY(compare_data(note, job, dataset));
    return compare_jobs(note, job, report);
}

/* --- finding the checkpoint --------------------------------------------------------------------------------------- */

/* Checkpoints load where they were saved; sessions refuse all else, and this does so before one is made. */
static sherd_status compare_layout(const shd_checkpoint *checkpoint, const shd_job *job) {
    sherd_options options;
    shd_plan *plan;
    shd_job_options(job, &options);
    SHD_TRY(shd_job_plan(job, options.stage, 0, &plan));
    sherd_status status = shd_checkpoint_fits(checkpoint, &options, plan);
    shd_plan_destroy(plan);
    return status;
}

/* What the note has against the job. */
static sherd_status compare_note(const shd_checkpoint *checkpoint, const shd_job *job, const shd_dataset *dataset,
                                 bool report, shd_resume *out) {
    const char *text = shd_checkpoint_content(checkpoint)->note;
    json_t *note;
    SHD_TRY(shd_json_parse(text, (int64_t)strlen(text), &note));
    sherd_status status = read_note(note, job, dataset, report, out);
    json_decref(note);
    return status == SHERD_OK ? SHERD_OK : shd_fail_within(status, "%s", out->path);
}

static sherd_status read_checkpoint(const shd_job *job, const shd_dataset *dataset, bool report, shd_resume *out) {
    shd_checkpoint *checkpoint;
    SHD_TRY(shd_checkpoint_open(out->path, &checkpoint));
    out->step = shd_checkpoint_content(checkpoint)->step;
    sherd_status status = compare_note(checkpoint, job, dataset, report, out);
    if (status == SHERD_OK && out->step < job->train.steps) status = compare_layout(checkpoint, job);
    shd_checkpoint_close(checkpoint);
    return status;
}

/* Saves leave none behind, so someone should know. */
static sherd_status warn_of_incomplete(const char *parent, bool report) {
    char *found;
    SHD_TRY(shd_checkpoint_find_incomplete(parent, &found));
    if (found && report) shd_log(SHERD_LOG_WARN, "%s has no manifest.json and is passed over", found);
    shd_free(found);
    return SHERD_OK;
}

/* A fresh run beside older checkpoints would be overtaken by them at the next resume. */
static sherd_status warn_of_leftovers(const shd_job *job, bool report) {
    char *left;
    SHD_TRY(shd_checkpoint_find(job->checkpoint.dir, &left));
    if (left && report)
        shd_log(SHERD_LOG_WARN, "checkpoint.resume is never, but %s is there: a later resume may take it", left);
    shd_free(left);
    return SHERD_OK;
}

static sherd_status find(const shd_job *job, const shd_dataset *dataset, bool report, shd_resume *out) {
    *out = (shd_resume){0};
    const char *asked = job->checkpoint.resume.path;
    if (!asked && job->checkpoint.resume.word == SHD_RESUME_NEVER) return warn_of_leftovers(job, report);
    const char *from = asked ? asked : job->checkpoint.dir;
    SHD_TRY(warn_of_incomplete(from, report));
    SHD_TRY(shd_checkpoint_find(from, &out->path));
    if (!out->path && asked)
        return shd_fail(SHERD_DATA, "checkpoint.resume: there is no complete checkpoint at %s", asked);
    if (!out->path) return SHERD_OK;
    sherd_status status = read_checkpoint(job, dataset, report, out);
    if (status != SHERD_OK) shd_resume_fini(out);
    return status;
}

sherd_status shd_resume_find(const shd_job *job, const shd_dataset *dataset, bool report, shd_resume *out) {
    sherd_status status = find(job, dataset, report, out);
    /* What cannot be read is refused like what makes no sense. */
    return status == SHERD_IO ? SHERD_DATA : status;
}

void shd_resume_fini(shd_resume *resume) {
    shd_free(resume->path);
    *resume = (shd_resume){0};
}

int64_t shd_resume_newest(const shd_job *job, char *path, size_t bytes) {
    char *found = NULL;
    shd_checkpoint *checkpoint;
    if (shd_checkpoint_find(job->checkpoint.dir, &found) != SHERD_OK || !found) return -1;
    sherd_status status = shd_checkpoint_open(found, &checkpoint);
    shd_free(found);
    if (status != SHERD_OK) return -1;
    int64_t step = shd_checkpoint_content(checkpoint)->step;
    snprintf(path, bytes, "%s", shd_checkpoint_path(checkpoint));
    shd_checkpoint_close(checkpoint);
    return step;
}
