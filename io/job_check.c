/* What a job's keys mean together: computed defaults, absolute paths, and keys that exclude each other. */
#include "io/file_list.h"
#include "io/job_keys.h"
#include "io/tokens.h"
#include "runtime/base/arith.h"
#include "runtime/base/status.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* --- paths -------------------------------------------------------------------------------------------------------- */

static sherd_status out_of_memory(const shd_job *job) { return shd_fail(SHERD_MEMORY, "%s: out of memory", job->path); }

/* `*out` = `path` if it is absolute, else base/path. */
static sherd_status join(const shd_job *job, const char *base, const char *path, const char **out) {
    while (path[0] == '.' && path[1] == '/') path += 2;
    size_t bytes = strlen(base) + strlen(path) + 2;
    char *joined = shd_keep_take(job->keep, bytes);
    if (!joined) return out_of_memory(job);
    const char *slash = *base && base[strlen(base) - 1] == '/' ? "" : "/";
    if (*path == '/')
        snprintf(joined, bytes, "%s", path);
    else
        snprintf(joined, bytes, "%s%s%s", base, slash, path);
    *out = joined;
    return SHERD_OK;
}

/* The absolute folder of the job file. */
static sherd_status find_job_folder(const shd_job *job, const char *working, const char **out) {
    const char *slash = strrchr(job->path, '/');
    if (!slash) return join(job, working, "", out);
    size_t length = slash == job->path ? 1 : (size_t)(slash - job->path);
    const char *folder = shd_keep_text(job->keep, job->path, length);
    return folder ? join(job, working, folder, out) : out_of_memory(job);
}

/* `folder` with its own special characters quoted where `path` is a glob, which it only leads to. */
static sherd_status glob_base(const shd_job *job, const char *folder, const char *path, const char **out) {
    *out = folder;
    if (!shd_path_is_glob(path) || !strpbrk(folder, "*?[\\")) return SHERD_OK;
    char *quoted = shd_keep_take(job->keep, 2 * strlen(folder) + 1), *at = quoted;
    if (!quoted) return out_of_memory(job);
    for (; *folder; *at++ = *folder++)
        if (strchr("*?[\\", *folder)) *at++ = '\\';
    *out = quoted;
    return SHERD_OK;
}

static sherd_status make_paths_absolute(const shd_job *job, const char *base, const char **paths, int32_t count) {
    for (int32_t i = 0; i < count; i++) {
        const char *from;
        SHD_TRY(glob_base(job, base, paths[i], &from));
        SHD_TRY(join(job, from, paths[i], &paths[i]));
    }
    return SHERD_OK;
}

static sherd_status make_sources_absolute(const shd_job *job, const char *base, const shd_job_sources *sources) {
    for (int32_t i = 0; i < sources->count; i++) {
        const shd_job_data_source *source = &sources->items[i];
        SHD_TRY(make_paths_absolute(job, base, source->paths, source->path_count));
        SHD_TRY(make_paths_absolute(job, base, source->target_paths, source->target_path_count));
    }
    return SHERD_OK;
}

static sherd_status make_absolute(shd_job *job, const char *folder, const char *working) {
    int32_t count;
    const shd_job_key *keys = shd_job_keys(&count);
    for (int32_t i = 0; i < count; i++) {
        void *field = (char *)job + keys[i].offset;
        const char **path = NULL, *base = job->origins[i].from_setting ? working : folder;
        if (keys[i].kind == SHD_KIND_SOURCES || keys[i].kind == SHD_KIND_SOURCES_OR_NULL)
            SHD_TRY(make_sources_absolute(job, base, field));
        if (keys[i].kind == SHD_KIND_PATH || keys[i].kind == SHD_KIND_PATH_OR_NULL) path = field;
        if (keys[i].kind == SHD_KIND_WORD_OR_PATH) path = &((shd_job_source *)field)->path;
        if (!path || !*path) continue;
        SHD_TRY(join(job, base, *path, path));
    }
    return SHERD_OK;
}

static bool is_set(const shd_job *job, const char *key) { return shd_job_origin_of(job, key)->place.source != NULL; }

static sherd_status complete_paths(shd_job *job) {
    char working[PATH_MAX];
    if (!getcwd(working, sizeof working))
        return shd_fail(SHERD_IO, "cannot find the working directory: %s", strerror(errno));
    const char *folder, *runs;
    SHD_TRY(find_job_folder(job, working, &folder));
    SHD_TRY(make_absolute(job, folder, working));
    SHD_TRY(join(job, folder, "runs", &runs));
    if (!job->run.dir) SHD_TRY(join(job, runs, job->top.name, &job->run.dir));
    if (!job->checkpoint.dir) SHD_TRY(join(job, job->run.dir, "checkpoints", &job->checkpoint.dir));
    if (!job->log.dir) job->log.dir = job->run.dir;
    return SHERD_OK;
}

static void complete_optimizer(shd_job *job) {
    bool muon = job->optimizer.name == SHERD_MUON;
    if (!is_set(job, "optimizer.momentum")) job->optimizer.momentum = muon ? 0.95 : 0;
    if (!is_set(job, "optimizer.nesterov")) job->optimizer.nesterov = muon && job->optimizer.momentum > 0;
}

sherd_status shd_job_complete(shd_job *job) {
    complete_optimizer(job);
    bool llama = job->model.family == SHD_JOB_LLAMA;
    if (!is_set(job, "model.n_kv_head")) job->model.n_kv_head = job->model.n_head;
    if (!llama) job->model.d_ff = 4 * job->model.d_model;
    if (!is_set(job, "model.tied_embeddings")) job->model.tied_embeddings = job->model.family == SHD_JOB_GPT2;
    if (job->model.family == SHD_JOB_MLP) job->model.context = 1; /* as of the model */
    return complete_paths(job);
}

/* --- combinations ------------------------------------------------------------------------------------------------- */

static shd_yaml_place place_of(const shd_job *job, const char *key) {
    shd_yaml_place place = shd_job_origin_of(job, key)->place;
    if (!place.source) place.source = job->path;
    return place;
}

/* Token files are named by paths, pairs of arrays as inputs and targets. */
static sherd_status check_sources(const shd_job *job, const char *key, const shd_job_sources *sources) {
    shd_yaml_place place = place_of(job, key);
    for (int32_t i = 0; i < sources->count && job->model.family != SHD_JOB_MLP; i++)
        if (sources->items[i].target_paths)
            return shd_yaml_fail(&place, key,
                                 "inputs and targets are arrays, and %s is trained on tokens; write the path of a "
                                 "token file",
                                 shd_job_word("model.family", (int32_t)job->model.family));
    return SHERD_OK;
}

static sherd_status check_mlp(const shd_job *job) {
    shd_yaml_place place = place_of(job, "data.ignored_label");
    if (job->model.loss == SHD_JOB_MSE && job->data.ignored_label != INT64_MIN)
        return shd_yaml_fail(&place, "data.ignored_label",
                             "%lld, but with model.loss: mse targets are numbers and no classes; set it to null",
                             (long long)job->data.ignored_label);
    place = place_of(job, "train.recompute");
    if (job->train.recompute == SHERD_RECOMPUTE_PART)
        return shd_yaml_fail(&place, "train.recompute", "attention, which mlp does not have; take none or unit");
    return SHERD_OK;
}

static sherd_status check_data(const shd_job *job) {
    SHD_TRY(check_sources(job, "data.train", &job->data.train));
    SHD_TRY(check_sources(job, "data.validation", &job->data.validation));
    shd_yaml_place place = place_of(job, "data.ignored_token");
    if (job->data.ignored_token >= job->model.vocab_size)
        return shd_yaml_fail(
            &place, "data.ignored_token", "%lld is not below model.vocab_size %lld; token ids are 0 to %lld",
            (long long)job->data.ignored_token, (long long)job->model.vocab_size, (long long)job->model.vocab_size - 1);
    place = place_of(job, "data.document_separator");
    if (job->data.document_separator >= job->model.vocab_size)
        return shd_yaml_fail(&place, "data.document_separator",
                             "%lld is not below model.vocab_size %lld; the model must know it as a token",
                             (long long)job->data.document_separator, (long long)job->model.vocab_size);
    place = place_of(job, "data.attend_across_documents");
    if (!job->data.attend_across_documents && job->data.document_separator < 0)
        return shd_yaml_fail(&place, "data.attend_across_documents",
                             "false, but there is no data.document_separator to tell documents apart; set it too");
    place = place_of(job, "train.evaluate_every");
    if (job->train.evaluate_every > 0 && job->data.validation.count == 0)
        return shd_yaml_fail(&place, "train.evaluate_every",
                             "%lld, but there is no data.validation; give a validation file, or set it to 0",
                             (long long)job->train.evaluate_every);
    return SHERD_OK;
}

static sherd_status check_sample(const shd_job *job) {
    shd_yaml_place place = place_of(job, "train.sample_tokens");
    if (job->train.sample_tokens == 0) return SHERD_OK;
    if (job->train.evaluate_every == 0)
        return shd_yaml_fail(&place, "train.sample_tokens",
                             "%lld, but nothing is validated; set train.evaluate_every, or this to 0",
                             (long long)job->train.sample_tokens);
    if (!shd_vocabulary_is_bytes(job->model.vocab_size))
        return shd_yaml_fail(&place, "train.sample_tokens",
                             "%lld, but tokens are no bytes: model.vocab_size is %lld, not 256 or 257; set it to 0",
                             (long long)job->train.sample_tokens, (long long)job->model.vocab_size);
    return SHERD_OK;
}

static sherd_status check_batches(const shd_job *job) {
    shd_yaml_place place = place_of(job, "train.global_batch");
    int64_t batch = job->train.global_batch, micro = job->train.micro_batch, ranks = job->run.ranks;
    int64_t unit = micro * ranks, below = batch / unit * unit;
    if (below == batch) return SHERD_OK;
    char fits[64];
    if (below > 0)
        snprintf(fits, sizeof fits, "the nearest that fit are %lld and %lld", (long long)below,
                 (long long)(below + unit));
    else
        snprintf(fits, sizeof fits, "the nearest that fits is %lld", (long long)unit);
    return shd_yaml_fail(&place, "train.global_batch",
                         "%lld is not a multiple of micro_batch %lld x ranks %lld = %lld; %s", (long long)batch,
                         (long long)micro, (long long)ranks, (long long)unit, fits);
}

const char *shd_job_items(const shd_job *job) { return job->model.family == SHD_JOB_MLP ? "samples" : "tokens"; }

int64_t shd_job_step_tokens(const shd_job *job) { return job->train.global_batch * job->model.context; }

static sherd_status check_warmup(const shd_job *job) {
    shd_yaml_place place = place_of(job, "optimizer.warmup_steps");
    long long steps = job->train.steps, tokens = job->optimizer.warmup_tokens, step_tokens = shd_job_step_tokens(job);
    if (job->optimizer.warmup_steps > steps)
        return shd_yaml_fail(&place, "optimizer.warmup_steps",
                             "%lld is more than train.steps %lld; the run would end warming up",
                             (long long)job->optimizer.warmup_steps, steps);
    place = place_of(job, "optimizer.warmup_tokens");
    if (shd_div_ceil(tokens, step_tokens) > steps)
        return shd_yaml_fail(&place, "optimizer.warmup_tokens",
                             "%lld are more than train.steps %lld x %lld tokens a step; the run would end warming up",
                             tokens, steps, step_tokens);
    return SHERD_OK;
}

static sherd_status check_replicas(const shd_job *job) {
    shd_yaml_place place = place_of(job, "shard.replicas");
    long long replicas = job->shard.replicas, ranks = job->run.ranks;
    if (ranks % replicas)
        return shd_yaml_fail(&place, "shard.replicas",
                             "%lld does not divide run.ranks %lld; each replica has the same number of ranks", replicas,
                             ranks);
    if (replicas > 1 && job->shard.stage == 0)
        return shd_yaml_fail(&place, "shard.replicas",
                             "%lld, but at shard.stage 0 every rank has a copy of everything; remove the key, or take "
                             "stage 1 to 3",
                             replicas);
    return SHERD_OK;
}

static sherd_status check_run(const shd_job *job) {
    shd_yaml_place place = place_of(job, "run.comm");
    if (job->run.comm == SHD_JOB_COMM_SELF && job->run.ranks > 1)
        return shd_yaml_fail(&place, "run.comm", "self is for one rank, and there are %lld; take auto",
                             (long long)job->run.ranks);
    if (job->run.comm == SHD_JOB_COMM_SHM && job->run.ranks == 1)
        return shd_yaml_fail(&place, "run.comm", "shm is for two ranks or more, and there is 1; take auto or self");
    bool links = job->run.comm == SHD_JOB_COMM_LIBRARY || job->run.comm == SHD_JOB_COMM_STAGED;
    bool shares = job->run.comm == SHD_JOB_COMM_SHM;
    if (links && job->run.device == SHD_JOB_DEVICE_CPU)
        return shd_yaml_fail(&place, "run.comm", "%s is between GPUs, but run.device is cpu; take auto",
                             shd_job_word("run.comm", (int32_t)job->run.comm));
    if (shares && job->run.device == SHD_JOB_DEVICE_GPU)
        return shd_yaml_fail(&place, "run.comm",
                             "shm is between ranks on CPUs, but run.device is %s; take auto or staged",
                             shd_job_word("run.device", (int32_t)job->run.device));
    return SHERD_OK;
}

/* What would have no effect is a mistake. */
static sherd_status check_safety(const shd_job *job) {
    shd_yaml_place place = place_of(job, "run.on_outlier");
    if (job->run.on_outlier != SHD_ON_OUTLIER_WARN && job->run.outlier_zscore == 0)
        return shd_yaml_fail(&place, "run.on_outlier",
                             "%s, but with run.outlier_zscore: 0 no step is an outlier; set it",
                             shd_job_word("run.on_outlier", (int32_t)job->run.on_outlier));
    place = place_of(job, "run.rollback_lr_factor");
    if (job->run.rollback_lr_factor < 1 && job->run.on_nonfinite != SHD_ON_NONFINITE_ROLLBACK &&
        job->run.on_outlier != SHD_ON_OUTLIER_ROLLBACK)
        return shd_yaml_fail(&place, "run.rollback_lr_factor",
                             "%g, but nothing rolls back; set run.on_nonfinite or run.on_outlier to rollback",
                             job->run.rollback_lr_factor);
    place = place_of(job, "run.straggler_factor");
    if (job->run.straggler_factor > 0 && job->run.straggler_factor <= 1)
        return shd_yaml_fail(&place, "run.straggler_factor",
                             "%g times the median would be every other rank; take 0 (nobody is looked for), or more "
                             "than 1",
                             job->run.straggler_factor);
    return SHERD_OK;
}

static sherd_status check_kept(const shd_job *job) {
    shd_yaml_place place = place_of(job, "checkpoint.keep_every");
    long long every = job->checkpoint.every, keep_every = job->checkpoint.keep_every;
    if (keep_every > 0 && job->checkpoint.keep == 0)
        return shd_yaml_fail(&place, "checkpoint.keep_every",
                             "%lld, but with checkpoint.keep: 0 all checkpoints stay; remove one of the two",
                             keep_every);
    if (keep_every > 0 && every > 0 && keep_every % every)
        return shd_yaml_fail(&place, "checkpoint.keep_every",
                             "%lld is not a multiple of checkpoint.every %lld; none would be saved then", keep_every,
                             every);
    place = place_of(job, "checkpoint.if_busy");
    if (job->checkpoint.if_busy == SHD_IF_BUSY_SKIP && !job->checkpoint.async)
        return shd_yaml_fail(&place, "checkpoint.if_busy",
                             "skip, but with checkpoint.async: false none is ever under way; remove one of the two");
    return SHERD_OK;
}

bool shd_job_resumes_despite(const shd_job *job, shd_job_despite what) {
    const shd_job_texts *named = &job->checkpoint.resume_despite;
    const char *word = shd_job_word("checkpoint.resume_despite", (int32_t)what);
    for (int32_t i = 0; i < named->count; i++)
        if (strcmp(named->items[i], word) == 0) return true;
    return false;
}

static sherd_status check_resume(const shd_job *job) {
    const shd_job_source *resume = &job->checkpoint.resume;
    shd_yaml_place place = place_of(job, "checkpoint.resume_weights_only");
    if (job->checkpoint.resume_weights_only && !resume->path)
        return shd_yaml_fail(&place, "checkpoint.resume_weights_only",
                             "true, but checkpoint.resume is %s; set that to the path of a checkpoint",
                             shd_job_word("checkpoint.resume", resume->word));
    place = place_of(job, "checkpoint.resume_skip");
    if (job->checkpoint.resume_skip.count > 0 && !job->checkpoint.resume_weights_only)
        return shd_yaml_fail(&place, "checkpoint.resume_skip",
                             "only what is not resumed in full can skip parameters; set "
                             "checkpoint.resume_weights_only: true too");
    place = place_of(job, "checkpoint.resume_despite");
    if (job->checkpoint.resume_despite.count > 0 && !resume->path && resume->word == SHD_RESUME_NEVER)
        return shd_yaml_fail(&place, "checkpoint.resume_despite",
                             "%s, but checkpoint.resume is never; remove one of the two",
                             job->checkpoint.resume_despite.items[0]);
    return SHERD_OK;
}

sherd_status shd_job_check(const shd_job *job) {
    SHD_TRY(shd_job_check_family(job));
    SHD_TRY(check_data(job));
    if (job->model.family == SHD_JOB_MLP) SHD_TRY(check_mlp(job));
    SHD_TRY(check_sample(job));
    SHD_TRY(check_batches(job));
    SHD_TRY(check_warmup(job));
    SHD_TRY(check_replicas(job));
    SHD_TRY(check_kept(job));
    SHD_TRY(check_safety(job));
    SHD_TRY(check_resume(job));
    return check_run(job);
}
