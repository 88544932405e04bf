#include "runtime/train/drill.h"

#include "io/file.h"
#include "runtime/base/hash.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/session/setup.h"
#include "runtime/train/evaluate.h"
#include "runtime/train/job_data.h"
#include "runtime/train/job_place.h"
#include "runtime/train/job_setup.h"
#include "runtime/train/note.h"

#include <dirent.h>
#include <endian.h>
#include <fcntl.h>
#include <math.h>
#include <sherd/session.h>
#include <string.h>
#include <sys/stat.h>

/* Sequences that are made up. */
enum { MADE_UP = 4 };

static sherd_status tokens_path(const shd_drill *drill, char path[SHD_PATH_BYTES]) {
    return shd_path_make(path, "%s/tokens.u32", drill->dir);
}

/* The job as the drill runs it. Destroy *out with shd_job_destroy. */
static sherd_status read_job(const shd_drill *drill, shd_job **out, bool *weights_only) {
    char tokens[SHD_PATH_BYTES];
    shd_checkpoint *checkpoint;
    SHD_TRY(tokens_path(drill, tokens));
    SHD_TRY(shd_checkpoint_open(drill->checkpoint, &checkpoint));
    const shd_note_changes changes = {
        .ranks = drill->ranks, .dir = drill->dir, .tokens = drill->data == SHD_DRILL_MADE_UP ? tokens : NULL};
    const shd_checkpoint_manifest *manifest = shd_checkpoint_content(checkpoint);
    *weights_only = strcmp(manifest->optimizer, SHD_CHECKPOINT_NO_OPTIMIZER) == 0;
    sherd_status status = shd_note_job(manifest->note, &changes, out);
    shd_checkpoint_close(checkpoint);
    return status == SHERD_OK ? SHERD_OK : shd_fail_within(status, "%s", drill->checkpoint);
}

/* --- before the ranks --------------------------------------------------------------------------------------------- */

/* Training data, or NULL with data that are not there. */
static shd_dataset *try_data(const shd_job *job, shd_drill_data data) {
    shd_dataset *dataset = NULL;
    if (data == SHD_DRILL_VALIDATION && job->data.validation.count == 0) return NULL;
    sherd_status status =
        data == SHD_DRILL_VALIDATION ? shd_job_open_validation(job, &dataset) : shd_job_open_training(job, &dataset);
    return status == SHERD_OK ? dataset : NULL;
}

/* Ids that jump about, the same ones always. */
static sherd_status make_up(const shd_drill *drill, const shd_job *job) {
    char path[SHD_PATH_BYTES];
    int descriptor;
    SHD_TRY(tokens_path(drill, path));
    SHD_TRY(shd_file_create(path, &descriptor));
    sherd_status status = SHERD_OK;
    for (int64_t i = 0; i < MADE_UP * job->model.context + 1 && status == SHERD_OK; i++) {
        const uint32_t token = htole32((uint32_t)((uint64_t)i * 2654435761u % (uint64_t)job->model.vocab_size));
        status = shd_file_write(descriptor, path, &token, sizeof token);
    }
    shd_file_close(descriptor);
    return status;
}

static sherd_status find_data(shd_drill *drill, const shd_job *job) {
    for (drill->data = SHD_DRILL_VALIDATION; drill->data <= SHD_DRILL_TRAINING; drill->data++) {
        shd_dataset *dataset = try_data(job, drill->data);
        shd_dataset_close(dataset);
        if (dataset) return SHERD_OK;
    }
    if (job->model.family == SHD_JOB_MLP) drill->data = SHD_DRILL_NO_DATA;
    return drill->data == SHD_DRILL_MADE_UP ? make_up(drill, job) : SHERD_OK;
}

sherd_status shd_drill_prepare(shd_drill *drill) {
    shd_job *job;
    drill->data = SHD_DRILL_NO_DATA;
    bool weights_only;
    SHD_TRY(read_job(drill, &job, &weights_only));
    drill->ranks = (int32_t)job->run.ranks;
    sherd_status status = find_data(drill, job);
    shd_job_destroy(job);
    return status;
}

/* --- a rank ------------------------------------------------------------------------------------------------------- */

/* What a rank has made. */
typedef struct drill_rank {
    const shd_drill *drill;
    shd_job *job;
    sherd_options options;
    shd_dataset *dataset;
    shd_feed *feed;
    shd_model *model;
    sherd_session *session;
    shd_evaluation_plan evaluation;
    bool weights_only; /* the checkpoint has no more */
} drill_rank;

static sherd_status open_data(drill_rank *rank) {
    const shd_job *job = rank->job;
    const bool validates = rank->drill->data == SHD_DRILL_VALIDATION;
    if (rank->drill->data == SHD_DRILL_NO_DATA) return SHERD_OK;
    SHD_TRY(validates ? shd_job_open_validation(job, &rank->dataset) : shd_job_open_training(job, &rank->dataset));
    const int64_t usual = validates ? job->train.evaluate_sequences : job->train.global_batch;
    rank->evaluation = shd_evaluation_plan_make(shd_dataset_sequence_count(rank->dataset),
                                                rank->drill->sequences ? rank->drill->sequences : usual,
                                                job->train.micro_batch, rank->options.world_size);
    rank->options.eval_micro_steps = rank->evaluation.micro_steps;
    return shd_job_create_feed(job, rank->dataset, &rank->options, 1, &rank->feed);
}

static sherd_status run(drill_rank *rank, shd_drill_result *out) {
    SHD_TRY(read_job(rank->drill, &rank->job, &rank->weights_only));
    const sherd_options place = rank->options;
    shd_job_options(rank->job, &rank->options);
    rank->options.rank = place.rank;
    rank->options.rendezvous = place.rendezvous;
    SHD_TRY(open_data(rank));
    SHD_TRY(shd_job_model(rank->job, &rank->model));
    SHD_TRY(sherd_session_create(&rank->options, shd_model_describe(rank->model), &rank->session));
    SHD_TRY(shd_job_place_model(rank->model, rank->session));
    sherd_load load = SHERD_LOAD_INIT;
    load.weights_only = rank->weights_only;
    SHD_TRY(sherd_session_load_with(rank->session, rank->drill->checkpoint, &load, NULL));
    shd_drill_result result = {.step = sherd_session_step_count(rank->session), .loss = NAN};
    if (rank->dataset) {
        sherd_evaluation found;
        SHD_TRY(shd_evaluate(rank->session, rank->model, shd_session_pool(rank->session), rank->feed, &rank->evaluation,
                             &rank->options, &found));
        result.target_count = found.target_count;
        if (found.target_count > 0) result.loss = found.loss;
        if (found.target_count > 0 && !isfinite(found.loss))
            return shd_fail(SHERD_NUMERIC, "the model is back, but its loss is %g", found.loss);
    }
    *out = result;
    return SHERD_OK;
}

sherd_status shd_drill_run(const shd_drill *drill, const sherd_options *place, shd_drill_result *out) {
    drill_rank rank = {.drill = drill, .options = *place};
    sherd_status status = run(&rank, out);
    shd_feed_destroy(rank.feed);
    shd_job_end_session(rank.model, rank.session);
    shd_dataset_close(rank.dataset);
    shd_job_destroy(rank.job);
    return status;
}

/* --- what must not change ----------------------------------------------------------------------------------------- */

uint64_t shd_drill_fingerprint(const char *folder) {
    DIR *entries = opendir(folder);
    uint64_t all = entries ? 1 : 0;
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        struct stat about;
        if (fstatat(dirfd(entries), entry->d_name, &about, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(about.st_mode))
            continue;
        /* A sum, as entries come in any order. */
        all += SHD_HASH(shd_hash_text(0, entry->d_name), (int64_t)about.st_ino, about.st_size, about.st_ctim.tv_sec,
                        about.st_ctim.tv_nsec);
    }
    if (entries) closedir(entries);
    return all;
}
