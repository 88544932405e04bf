#include "runtime/train/resume.h"

#include "io/checkpoint.h"
#include "io/checkpoint_folder.h"
#include "io/checkpoint_reader.h"
#include "io/json.h"
#include "runtime/base/log.h"
#include "runtime/base/memory.h"
#include "runtime/base/pattern.h"
#include "runtime/base/status.h"
#include "runtime/train/compare.h"
#include "runtime/train/job_setup.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What is looked for, and for whom. */
typedef struct resume_search {
    const shd_job *job;
    const shd_dataset *dataset;
    shd_resume_report report;
    int64_t below;            /* only checkpoints of fewer steps, */
    const shd_resume *oldest; /* and of more than this one, to be taken where none is whole; NULL: there is none */
} resume_search;

/* What is wrong with the newest of the checkpoints that are damaged; "": none is. */
typedef struct first_damage {
    char cause[700];
} first_damage;

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

/* Where the random numbers of the run come from, for readers: every one is worked out from the seed and from what it is
 * for, so there is no state to go on from. */
static json_t *rng_json(const shd_job *job) {
    return json_pack("{s:s, s:I}", "generator", "philox4x32-10", "seed", (json_int_t)job->train.seed);
}

/* Where the learning rate is, likewise: a function of the step. */
static json_t *schedule_json(const shd_job *job, int64_t step) {
    const char *name = shd_job_word("optimizer.schedule", (int32_t)job->optimizer.schedule);
    return json_pack("{s:s, s:I, s:I}", "name", name, "step", (json_int_t)step, "steps", (json_int_t)job->train.steps);
}

static json_t *note_json(const shd_job *job, const char *job_text, const shd_dataset *dataset,
                         const shd_resume_place *place, const shd_safety_state *safety) {
    json_t *note = json_object(), *data = json_object();
    bool mixed = shd_dataset_source_count(dataset) > 1;
    bool good = note && data && add(data, "tokens", json_integer(shd_dataset_token_count(dataset))) &&
                add(data, "fingerprint", shd_json_from_hash(shd_dataset_fingerprint(dataset))) &&
                (!mixed || add(data, "sources", sources_json(job, dataset))) &&
                add(note, "job", json_loads(job_text, 0, NULL)) &&
                add(note, "sequence", json_integer(place->sequence)) &&
                add(note, "tokens_seen", json_integer(place->tokens_seen)) && add(note, "rng", rng_json(job)) &&
                add(note, "schedule", schedule_json(job, place->step)) &&
                add(note, "safety", shd_safety_json(safety)) && json_object_set(note, "data", data) == 0;
    json_decref(data);
    if (good) return note;
    json_decref(note);
    return NULL;
}

sherd_status shd_resume_note(const shd_job *job, const shd_dataset *dataset, const shd_resume_place *place,
                             const shd_safety_state *safety, char **out) {
    char *job_text;
    SHD_TRY(shd_job_resolved_json(job, &job_text));
    json_t *note = note_json(job, job_text, dataset, place, safety);
    shd_job_text_free(job_text);
    if (!note) return shd_fail(SHERD_MEMORY, "no memory for the note of a checkpoint");
    sherd_status status = shd_json_print(note, 0, out);
    json_decref(note);
    return status;
}

/* --- one checkpoint ----------------------------------------------------------------------------------------------- */

sherd_load shd_resume_load(const shd_job *job, const shd_resume *resume) {
    sherd_load load = SHERD_LOAD_INIT;
    if (!resume->weights_only) return load;
    load.weights_only = true;
    load.skip_patterns = job->checkpoint.resume_skip.items;
    load.skip_pattern_count = job->checkpoint.resume_skip.count;
    return load;
}

static bool matches_any(const char *pattern, const sherd_tensor *tensors, int32_t count) {
    for (int32_t t = 0; t < count; t++)
        if (shd_pattern_matches(pattern, tensors[t].name)) return true;
    return false;
}

/* What is to be skipped must be in the model, or in the checkpoint. */
static sherd_status check_skipped(const shd_checkpoint *checkpoint, const shd_job *job, const shd_plan *plan) {
    const shd_job_texts *skip = &job->checkpoint.resume_skip;
    const shd_checkpoint_manifest *saved = shd_checkpoint_content(checkpoint);
    for (int32_t i = 0; i < skip->count; i++)
        if (!matches_any(skip->items[i], plan->tensors, plan->tensor_count) &&
            !matches_any(skip->items[i], saved->tensors, saved->tensor_count))
            return shd_job_fail_within(
                job, shd_pattern_fail("checkpoint.resume_skip", skip->items[i], plan->tensors, plan->tensor_count));
    return SHERD_OK;
}

/* Whether a session of the job can load it; sessions refuse it too, but this does so before one is made. */
static sherd_status check_fit(const shd_checkpoint *checkpoint, const shd_job *job, const shd_resume *resume) {
    sherd_options options;
    shd_plan *plan;
    shd_job_options(job, &options);
    const sherd_load load = shd_resume_load(job, resume);
    SHD_TRY(shd_job_plan(job, options.stage, 0, &plan));
    sherd_status status = resume->weights_only ? check_skipped(checkpoint, job, plan) : SHERD_OK;
    if (status == SHERD_OK) status = shd_checkpoint_fits(checkpoint, &options, plan, &load);
    shd_plan_destroy(plan);
    return status;
}

static sherd_status read_note(const json_t *note, const resume_search *search, shd_resume *out) {
    SHD_TRY(shd_json_int(note, "sequence", 0, INT64_MAX, &out->place.sequence));
    SHD_TRY(shd_json_int(note, "tokens_seen", 0, INT64_MAX, &out->place.tokens_seen));
    SHD_TRY(shd_safety_read(json_object_get(note, "safety"), search->job, &out->safety));
    return shd_note_compare(note, search->job, search->dataset, out->place.sequence, search->report == SHD_REPORT_ALL);
}

/* What the note has against the job. */
static sherd_status compare_note(const shd_checkpoint *checkpoint, const resume_search *search, shd_resume *out) {
    const char *text = shd_checkpoint_content(checkpoint)->note;
    json_t *note;
    SHD_TRY(shd_json_parse(text, (int64_t)strlen(text), &note));
    sherd_status status = read_note(note, search, out);
    json_decref(note);
    return status == SHERD_OK ? SHERD_OK : shd_fail_within(status, "%s", shd_checkpoint_path(checkpoint));
}

/* Parameters alone are nothing to go on from. */
static sherd_status check_states(const shd_checkpoint *checkpoint) {
    const char *path = shd_checkpoint_path(checkpoint);
    if (strcmp(shd_checkpoint_content(checkpoint)->optimizer, SHD_CHECKPOINT_NO_OPTIMIZER) != 0) return SHERD_OK;
    return shd_fail(SHERD_DATA,
                    "%s: imported weights, without optimizer state; start from them with model.init: %s, or with "
                    "checkpoint.resume: %s and checkpoint.resume_weights_only: true",
                    path, path, path);
}

/* Takes the checkpoint, an open one, as where the run goes on. */
static sherd_status adopt(const shd_checkpoint *checkpoint, const resume_search *search, shd_resume *out) {
    shd_resume found = {.place.step = shd_checkpoint_content(checkpoint)->step};
    SHD_TRY(check_states(checkpoint));
    SHD_TRY(compare_note(checkpoint, search, &found));
    if (found.place.step < search->job->train.steps) SHD_TRY(check_fit(checkpoint, search->job, &found));
    found.path = shd_strdup(shd_checkpoint_path(checkpoint));
    if (!found.path) return shd_fail(SHERD_MEMORY, "no memory for a path");
    *out = found;
    return SHERD_OK;
}

/* --- the newest that is whole ------------------------------------------------------------------------------------- */

/* Whether there is a manifest, or none, rather than something that this process may not see. */
static sherd_status look(const char *folder) {
    char path[SHD_PATH_BYTES];
    SHD_TRY(shd_path_make(path, "%s/manifest.json", folder));
    if (access(path, F_OK) == 0 || errno == ENOENT || errno == ENOTDIR) return SHERD_OK;
    return shd_fail(SHERD_IO, "cannot look into %s, which may be the newest checkpoint: %s", folder, strerror(errno));
}

/* The last failure was damage to the checkpoint at `path`: an older one may do. */
static void pass_over(const char *path, const resume_search *search, first_damage *damage) {
    if (search->report != SHD_REPORT_NOTHING)
        shd_log(SHERD_LOG_WARN, "%s is damaged and is passed over: %s", path, sherd_last_error());
    if (!damage->cause[0]) snprintf(damage->cause, sizeof damage->cause, "%s", sherd_last_error());
}

/* Opens it. Where nothing will be loaded, the head and index of every file are read too, so that a dry run tells what can
 * be told without reading values. */
static sherd_status open_candidate(const char *path, const resume_search *search, shd_checkpoint **out) {
    shd_checkpoint *checkpoint;
    SHD_TRY(shd_checkpoint_open(path, &checkpoint));
    shd_reader *reader = NULL;
    sherd_status status = search->report == SHD_REPORT_DAMAGE ? shd_reader_create(checkpoint, &reader) : SHERD_OK;
    shd_reader_destroy(reader);
    if (status == SHERD_OK)
        *out = checkpoint;
    else
        shd_checkpoint_close(checkpoint);
    return status;
}

/* Takes the checkpoint at `path`, or passes it over. What cannot be read for another reason (a newer version of the
 * format, no permission) may be as good as any, so to pass it over would be to train its steps again: a failure. */
static sherd_status try_candidate(const char *path, const resume_search *search, first_damage *damage,
                                  shd_resume *out) {
    shd_checkpoint *checkpoint;
    SHD_TRY(look(path));
    sherd_status status = open_candidate(path, search, &checkpoint);
    if (status == SHERD_DATA) {
        pass_over(path, search, damage);
        return SHERD_OK;
    }
    SHD_TRY(status);
    status = adopt(checkpoint, search, out);
    shd_checkpoint_close(checkpoint);
    return status;
}

static sherd_status walk(const shd_checkpoint_list *list, const resume_search *search, first_damage *damage,
                         shd_resume *out) {
    int64_t above = search->oldest ? search->oldest->place.step : -1;
    for (int64_t i = list->count; i-- > 0 && !out->path;) {
        const shd_checkpoint_entry *entry = &list->entries[i];
        if (entry->is_step && entry->step > above && entry->step < search->below)
            SHD_TRY(try_candidate(entry->path, search, damage, out));
    }
    if (out->path || !damage->cause[0] || search->oldest) return SHERD_OK;
    return shd_fail(SHERD_DATA,
                    "%s; no checkpoint in %s is whole; to start from the beginning beside them, say checkpoint.resume: "
                    "never, or take another checkpoint.dir",
                    damage->cause, search->job->checkpoint.dir);
}

/* Goes on from the newest in checkpoint.dir of fewer than search->below steps that is whole; none: *out is as it was. */
static sherd_status find_own(const resume_search *search, first_damage *damage, shd_resume *out) {
    shd_checkpoint_list list = {0};
    const char *dir = search->job->checkpoint.dir;
    if (access(dir, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR)) return SHERD_OK;
    SHD_TRY(shd_checkpoint_list_folders(dir, &list));
    sherd_status status = walk(&list, search, damage, out);
    shd_checkpoint_list_release(&list);
    return status;
}

/* --- what the job asks for ---------------------------------------------------------------------------------------- */

/* A fresh run beside older checkpoints has them moved aside. */
static sherd_status warn_of_leftovers(const shd_job *job, shd_resume_report report) {
    char *left;
    SHD_TRY(shd_checkpoint_find(job->checkpoint.dir, &left));
    if (left && report == SHD_REPORT_ALL)
        shd_log(SHERD_LOG_WARN,
                "checkpoint.resume is never, but %s is there: it and all others are moved aside when the first new one "
                "is complete",
                left);
    shd_free(left);
    return SHERD_OK;
}

/* Takes parameters alone from it. */
static sherd_status adopt_weights(const shd_checkpoint *checkpoint, const resume_search *search, shd_resume *out) {
    shd_resume found = {.weights_only = true, .safety = shd_safety_start(search->job)};
    SHD_TRY(check_fit(checkpoint, search->job, &found));
    found.path = shd_strdup(shd_checkpoint_path(checkpoint));
    if (!found.path) return shd_fail(SHERD_MEMORY, "no memory for a path");
    *out = found;
    return SHERD_OK;
}

sherd_status shd_resume_take(const shd_job *job, const shd_dataset *dataset, const char *path, shd_resume *out) {
    const resume_search search = {.job = job, .dataset = dataset, .below = INT64_MAX};
    shd_checkpoint *checkpoint;
    SHD_TRY(shd_checkpoint_open(path, &checkpoint));
    sherd_status status = adopt(checkpoint, &search, out);
    shd_checkpoint_close(checkpoint);
    return status;
}

/* Exactly what was asked for, or nothing. */
static sherd_status find_asked(const resume_search *search, const char *asked, shd_resume *out) {
    char *path;
    shd_checkpoint *checkpoint;
    SHD_TRY(shd_checkpoint_find(asked, &path));
    if (!path) return shd_fail(SHERD_DATA, "checkpoint.resume: there is no complete checkpoint at %s", asked);
    sherd_status status = shd_checkpoint_open(path, &checkpoint);
    shd_free(path);
    SHD_TRY(status);
    bool weights_only = search->job->checkpoint.resume_weights_only;
    status = weights_only ? adopt_weights(checkpoint, search, out) : adopt(checkpoint, search, out);
    shd_checkpoint_close(checkpoint);
    if (status == SHERD_OK) out->named = true;
    return status;
}

static sherd_status find(const resume_search *search, shd_resume *out) {
    const shd_job *job = search->job;
    const char *asked = job->checkpoint.resume.path;
    *out = (shd_resume){.safety = shd_safety_start(job)};
    if (!asked && job->checkpoint.resume.word == SHD_RESUME_NEVER) return warn_of_leftovers(job, search->report);
    if (asked && !job->checkpoint.resume_weights_only) return find_asked(search, asked, out);
    first_damage damage = {""};
    SHD_TRY(find_own(search, &damage, out));
    return asked && !out->path ? find_asked(search, asked, out) : SHERD_OK;
}

/* What cannot be read is refused like what makes no sense. */
static sherd_status refused(sherd_status status) {
    return status == SHERD_IO || status == SHERD_UNSUPPORTED ? SHERD_DATA : status;
}

sherd_status shd_resume_find(const shd_job *job, const shd_dataset *dataset, shd_resume_report report,
                             shd_resume *out) {
    const resume_search search = {.job = job, .dataset = dataset, .report = report, .below = INT64_MAX};
    return refused(find(&search, out));
}

bool shd_resume_has_older(const shd_resume *resume) { return resume->path && !resume->named; }

sherd_status shd_resume_find_older(const shd_job *job, const shd_dataset *dataset, shd_resume_report report,
                                   const shd_resume *oldest, shd_resume *resume) {
    shd_resume older = {0};
    const resume_search search = {
        .job = job, .dataset = dataset, .report = report, .below = resume->place.step, .oldest = oldest};
    first_damage damage = {""};
    pass_over(resume->path, &search, &damage);
    sherd_status status = find_own(&search, &damage, &older);
    if (status == SHERD_OK && oldest && !older.path) status = shd_resume_copy(oldest, &older);
    if (status != SHERD_OK) return refused(status);
    shd_resume_fini(resume);
    *resume = older;
    return SHERD_OK;
}

sherd_status shd_resume_copy(const shd_resume *resume, shd_resume *out) {
    char *path = resume->path ? shd_strdup(resume->path) : NULL;
    if (resume->path && !path) return shd_fail(SHERD_MEMORY, "no memory for a path");
    *out = *resume;
    out->path = path;
    return SHERD_OK;
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
