#include "runtime/train/compare.h"

#include "io/job_keys.h"
#include "io/json.h"
#include "runtime/base/arith.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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

/* Two jobs that are held against each other. */
typedef struct comparison {
    const shd_job *job;       /* this one */
    const json_t *then, *now; /* the note's and this one, as resolved */
    bool report;
} comparison;

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

/* True for the model, but not where its first weights came from, nor how it is trained. */
static bool is_model(const char *path) {
    return strncmp(path, "model.", 6) == 0 && strcmp(path, "model.init") != 0 && strcmp(path, "model.dropout") != 0;
}

/* True for what says which data there are, and in which order, or who counts; data.train is compared by its contents. */
static bool is_data(const char *path) {
    static const char *const keys[] = {"data.shuffle",       "data.ignored_token",
                                       "data.ignored_label", "data.document_separator",
                                       "data.input_scale",   "data.attend_across_documents"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(path, keys[i]) == 0) return true;
    return false;
}

/* What must be named in checkpoint.resume_despite for the key to have changed; NULL: nothing can allow it, or nothing
 * need. */
static const char *allowance(const char *path) {
    if (is_data(path)) return "data";
    return strcmp(path, "train.seed") == 0 ? "seed" : NULL;
}

/* True for what says where and how, not what is computed; the number of ranks is worth a word. */
static bool is_silent(const char *path) {
    if (strcmp(path, "run.ranks") == 0) return false;
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

static bool is_allowed(const comparison *with, const char *what) {
    return shd_job_resumes_despite(with->job, strcmp(what, "data") == 0 ? SHD_DESPITE_DATA : SHD_DESPITE_SEED);
}

static sherd_status refuse_key(const char *path, const char *then_text, const char *now_text) {
    const char *what = allowance(path);
    char despite[80] = "";
    if (what) snprintf(despite, sizeof despite, ", or allow it with checkpoint.resume_despite: [%s]", what);
    return shd_fail(SHERD_DATA,
                    "%s was %s and is %s now; a run cannot go on with another one: set it back, or take another "
                    "checkpoint.dir, or checkpoint.resume: never%s",
                    path, then_text, now_text, despite);
}

static sherd_status compare_key(const comparison *with, const char *path) {
    char then_text[VALUE_BYTES], now_text[VALUE_BYTES];
    const json_t *then = at_path(with->then, path), *now = at_path(with->now, path);
    bool equal = then && now ? json_equal(then, now) : then == now;
    if (equal || is_silent(path) || (!then && is_default(path, now))) return SHERD_OK;
    value_text(then, then_text);
    value_text(now, now_text);
    const char *what = allowance(path);
    if (is_model(path) || (what && !is_allowed(with, what))) return refuse_key(path, then_text, now_text);
    if (with->report)
        shd_log(SHERD_LOG_INFO, "resuming: %s was %s and is %s now%s", path, then_text, now_text,
                what ? ", which checkpoint.resume_despite allows" : "");
    return SHERD_OK;
}

/* Every key that either job has in a section, "" being the whole job; `all` has the keys of both. */
static sherd_status compare_section(const comparison *with, const char *section, const json_t *all) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)all, name, value) {
        char path[128];
        snprintf(path, sizeof path, "%s%s%s", section, *section ? "." : "", name);
        SHD_TRY(shd_job_find_section(path) >= 0 ? compare_section(with, path, value) : compare_key(with, path));
    }
    return SHERD_OK;
}

static sherd_status compare_keys(const comparison *with) {
    json_t *all = json_deep_copy(with->now);
    if (!all) return shd_fail(SHERD_MEMORY, "no memory to compare jobs");
    sherd_status status = json_object_update_recursive(all, (json_t *)with->then) == 0
                              ? compare_section(with, "", all)
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

static void report_schedule(const comparison *with) {
    const shd_job *job = with->job;
    bool moved = !json_equal(at_path(with->then, "train.steps"), at_path(with->now, "train.steps"));
    bool follows = job->optimizer.schedule != SHERD_CONSTANT && job->optimizer.schedule != SHERD_INVERSE_SQRT;
    if (moved && follows)
        shd_log(SHERD_LOG_INFO, "resuming: optimizer.schedule: %s now runs to step %lld",
                shd_job_word("optimizer.schedule", (int32_t)job->optimizer.schedule), (long long)job->train.steps);
}

static sherd_status compare_jobs(const json_t *note, const shd_job *job, bool report) {
    const json_t *then = json_object_get(note, "job");
    char *text;
    if (!json_is_object(then))
        return shd_fail(SHERD_DATA, "its note holds no job; it was not written by 'sherd train'");
    SHD_TRY(shd_job_resolved_json(job, &text));
    json_t *now = json_loads(text, 0, NULL);
    shd_job_text_free(text);
    if (!now) return shd_fail(SHERD_MEMORY, "no memory to compare jobs");
    const comparison with = {.job = job, .then = then, .now = now, .report = report};
    sherd_status status = compare_keys(&with);
    if (status == SHERD_OK && report) {
        hint_at_batch(then, job);
        report_schedule(&with);
    }
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

/* What has become of data.train, in words. */
static void describe_change(const json_t *note, const shd_job *job, const shd_dataset *dataset, const json_t *data,
                            char text[3 * VALUE_BYTES]) {
    char then_text[VALUE_BYTES], now_text[VALUE_BYTES], which[48] = "";
    const json_t *sources = json_object_get(data, "sources");
    uint64_t then = 0;
    shd_json_hash(data, "fingerprint", &then);
    json_t *now_json = shd_job_sources_json(&job->data.train);
    value_text(at_path(json_object_get(note, "job"), "data.train"), then_text);
    value_text(now_json, now_text);
    json_decref(now_json);
    int32_t other = sources ? find_other_source(sources, job, dataset) : -1;
    if (other >= 0) snprintf(which, sizeof which, "; the first difference is in data.train[%d]", other);
    snprintf(text, 3 * VALUE_BYTES,
             "data.train has changed: it was %s with %lld tokens (fingerprint %016llx) and is %s with %lld "
             "(%016llx)%s",
             then_text, (long long)json_integer_value(json_object_get(data, "tokens")), (unsigned long long)then,
             now_text, (long long)shd_dataset_token_count(dataset),
             (unsigned long long)shd_dataset_fingerprint(dataset), which);
}

static sherd_status compare_data(const json_t *note, const shd_job *job, const shd_dataset *dataset, bool report) {
    const json_t *data = json_object_get(note, "data");
    char text[3 * VALUE_BYTES];
    uint64_t then;
    int64_t then_count;
    SHD_TRY(shd_json_int(data, "tokens", 0, INT64_MAX, &then_count));
    SHD_TRY(shd_json_hash(data, "fingerprint", &then));
    if (then == shd_dataset_fingerprint(dataset)) return SHERD_OK;
    describe_change(note, job, dataset, data, text);
    if (!shd_job_resumes_despite(job, SHD_DESPITE_DATA))
        return shd_fail(
            SHERD_DATA,
            "%s; set it back, or take another checkpoint.dir, or checkpoint.resume: never, or allow it with "
            "checkpoint.resume_despite: [data]",
            text);
    if (report) shd_log(SHERD_LOG_INFO, "resuming: %s, which checkpoint.resume_despite allows", text);
    return SHERD_OK;
}

/* Whether any of the keys that say in which order data come are others. */
static bool is_reordered(const json_t *note, const shd_job *job, const shd_dataset *dataset) {
    const json_t *then = json_object_get(note, "job");
    uint64_t data = 0;
    bool other = shd_json_hash(json_object_get(note, "data"), "fingerprint", &data) != SHERD_OK ||
                 data != shd_dataset_fingerprint(dataset);
    other = other || (job->data.shuffle && json_integer_value(at_path(then, "train.seed")) != job->train.seed);
    json_t *shuffle = json_boolean(job->data.shuffle);
    other = other || !json_equal(at_path(then, "data.shuffle"), shuffle);
    json_decref(shuffle);
    const json_t *separator = at_path(then, "data.document_separator");
    int64_t before = json_is_integer(separator) ? json_integer_value(separator) : -1;
    return other || before != job->data.document_separator;
}

sherd_status shd_note_compare(const json_t *note, const shd_job *job, const shd_dataset *dataset, int64_t sequence,
                              bool report) {
    SHD_TRY(compare_data(note, job, dataset, report));
    SHD_TRY(compare_jobs(note, job, report));
    if (report && is_reordered(note, job, dataset))
        shd_log(SHERD_LOG_INFO,
                "resuming: data come in another order than before: the run goes on at sequence %lld of the new one, so "
                "that some may come once more in this epoch, and some not at all",
                (long long)sequence);
    return SHERD_OK;
}
