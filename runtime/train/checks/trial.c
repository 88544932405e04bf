#include "runtime/train/checks/trial.h"

#include "io/file.h"
#include "runtime/base/clock.h"
#include "runtime/base/hash.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/session/setup.h"
#include "runtime/train/checks/executable.h"
#include "runtime/train/fill.h"
#include "runtime/train/job_data.h"
#include "runtime/train/job_place.h"
#include "runtime/train/job_setup.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A flight check ends; and a step that has taken longer is not made twice. */
static const double MOST_WAIT_S = 120, MOST_START_S = 60, LONG_STEP_MS = 1000, MEASURE_MS = 300, OVERFIT_MS = 60000;
/* A loss that is still above this part of the first after HOPE_STEPS goes nowhere. */
static const double HOPE = 0.9;
enum { MOST_STEPS = 100, OVERFIT_STEPS = 2000, HOPE_STEPS = 300, NAME_BYTES = 256, FLAG_OVER = 1 };

/* --- who a rank is ------------------------------------------------------------------------------------------------ */

double shd_trial_clock_ms(void) {
    struct timespec wall;
    double before_ms = shd_clock_ms();
    clock_gettime(CLOCK_REALTIME, &wall);
    double middle_ms = (before_ms + shd_clock_ms()) / 2;
    return (double)wall.tv_sec * 1e3 + (double)wall.tv_nsec * 1e-6 - middle_ms;
}

/* What the kernel has counted for this thread, which does its part of all that a rank computes: time in which it was
 * ready to run, without a core. */
static double count_wait_ms(void) {
    char text[128] = "";
    unsigned long long ran = 0, waited = 0;
    int file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? 0 : read(file, text, sizeof text - 1);
    if (file >= 0) close(file);
    return got > 0 && sscanf(text, "%llu %llu", &ran, &waited) == 2 ? (double)waited * 1e-6 : 0;
}

/* --- a session on one batch --------------------------------------------------------------------------------------- */

typedef enum session_kind { KIND_STEP, KIND_OVERFIT, KIND_COMPARE } session_kind;

typedef struct trial_run {
    const shd_trial *trial;
    const shd_job *job;
    session_kind kind;
    sherd_options options;
    char rendezvous[NAME_BYTES];
    shd_dataset *dataset;
    shd_resume from;
    shd_model *model;
    sherd_session *session;
    shd_feed *feed;
    int64_t target_count; /* this rank's of the batch */
    shd_trial_bits *bits; /* of a comparison, on rank 0 */
    int32_t step;         /* of it */
} trial_run;

/* Notes what the unit is about to read, its own tensors alone: in micro-step 0 of each step. */
static void note_bits(trial_run *run, const sherd_view *view) {
    const sherd_model *model = shd_model_describe(run->model);
    const sherd_unit *unit = &model->units[view->unit];
    for (int32_t t = unit->first_tensor; t < unit->first_tensor + unit->tensor_count; t++) {
        int64_t count = 1;
        for (int32_t d = 0; d < model->tensors[t].dim_count; d++) count *= model->tensors[t].shape[d];
        int32_t place = t < SHD_TRIAL_TENSORS ? t : SHD_TRIAL_TENSORS - 1;
        uint64_t *hash = &run->bits->tensors[run->step][place];
        if (count > 0)
            *hash = shd_hash_bytes(*hash, view->parameters[t], (size_t)shd_span_bytes(run->options.precision, count));
    }
}

static sherd_status forward(void *user, const sherd_view *view) {
    trial_run *run = user;
    if (view->unit == 0) {
        shd_batch batch = shd_feed_batch(run->feed, view->micro_step);
        shd_model_bind(run->model, shd_session_pool(run->session), &batch);
    }
    if (run->bits && view->micro_step == 0 && !view->again) note_bits(run, view);
    return shd_model_forward(run->model, view);
}

static sherd_status backward(void *user, const sherd_view *view) {
    trial_run *run = user;
    SHD_TRY(shd_model_backward(run->model, view));
    if (view->unit != shd_model_describe(run->model)->unit_count - 1) return SHERD_OK;
    shd_batch batch = shd_feed_batch(run->feed, view->micro_step);
    return shd_feed_add(run->feed, run->session, run->model, &batch);
}

/* Few steps have no outliers; but a job that looks for some runs another program than one that does not. */
static bool skips_none(void *user, const sherd_step_result *found) {
    (void)user;
    (void)found;
    return false;
}

/* The job's own, so that its own program is tried. What is learnt by heart is learnt at the full rate at once, and without
 * what keeps from it. */
static void choose_options(trial_run *run, const sherd_options *place) {
    static const char *const names[] = {[KIND_STEP] = "step", [KIND_OVERFIT] = "overfit", [KIND_COMPARE] = "compare"};
    sherd_options *options = &run->options;
    shd_job_options(run->job, options);
    snprintf(run->rendezvous, sizeof run->rendezvous, "%s/doctor-%s", place->rendezvous ? place->rendezvous : "",
             names[run->kind]);
    options->rank = place->rank;
    options->rendezvous = run->rendezvous;
    options->timeout_s = fmin(options->timeout_s, MOST_WAIT_S);
    options->start_timeout_s = fmin(options->start_timeout_s, MOST_START_S);
    if (options->judge) options->judge = skips_none;
    options->micro_steps = run->kind == KIND_COMPARE ? run->trial->compare_batches / options->world_size : 1;
    if (run->kind != KIND_OVERFIT) return;
    options->optimizer.schedule = SHERD_CONSTANT;
    options->optimizer.warmup_steps = 0;
    options->optimizer.warmup_tokens = 0;
    options->optimizer.decay = SHERD_DECAY_NONE;
    options->optimizer.weight_decay = 0;
    options->optimizer.decay_patterns = NULL;
    options->optimizer.decay_pattern_count = 0;
}

static sherd_status create_model(trial_run *run) {
    shd_model_config config = shd_job_model_config(run->job);
    if (run->kind == KIND_OVERFIT) config.dropout = 0;
    return shd_model_create(&config, &run->model);
}

static sherd_status open_run(trial_run *run) {
    SHD_TRY(shd_job_open_training(run->job, &run->dataset));
    SHD_TRY(shd_resume_find(run->job, run->dataset, SHD_REPORT_NOTHING, &run->from));
    SHD_TRY(create_model(run));
    SHD_TRY(sherd_session_create(&run->options, shd_model_describe(run->model), &run->session));
    SHD_TRY(shd_job_place_model(run->model, run->session));
    SHD_TRY(shd_session_compare(run->session, "data", shd_dataset_fingerprint(run->dataset)));
    const shd_fill_config fill = {.job = run->job,
                                  .dataset = run->dataset,
                                  .model = run->model,
                                  .session = run->session,
                                  .report = SHD_REPORT_NOTHING};
    SHD_TRY(shd_fill_session(&fill, &run->from));
    SHD_TRY(shd_job_create_feed(run->job, run->dataset, &run->options, run->options.micro_steps, &run->feed));
    const int64_t steps = run->kind == KIND_COMPARE ? SHD_TRIAL_STEPS : 1;
    int32_t ready;
    SHD_TRY(shd_feed_start(run->feed, run->from.place.sequence, steps));
    return shd_feed_next(run->feed, &run->target_count, &ready);
}

static void close_run(trial_run *run) {
    shd_feed_destroy(run->feed);
    shd_job_end_session(run->model, run->session);
    shd_resume_fini(&run->from);
    shd_dataset_close(run->dataset);
}

static sherd_status step(trial_run *run, sherd_step_result *result) {
    const sherd_callbacks callbacks = {.size = sizeof callbacks, .forward = forward, .backward = backward, .user = run};
    char where[200];
    SHD_TRY(sherd_run_step(run->session, run->target_count, &callbacks, result));
    if (!result->nonfinite) return SHERD_OK;
    shd_session_describe_nonfinite(run->session, result, where, sizeof where);
    return shd_fail(SHERD_NUMERIC, "loss is %g and gradient norm is %g; %s", result->loss, result->grad_norm, where);
}

/* --- what is tried ------------------------------------------------------------------------------------------------ */

/* A step for its loss; and, where that was quick, more of them for their time: the first one meets cold caches. All
 * ranks make as many, by times that they all know. */
static sherd_status try_step(trial_run *run, double begun_ms, shd_trial_rank *out) {
    sherd_step_result result;
    out->start_ms = shd_clock_ms() - begun_ms;
    out->random = !run->from.path && !run->job->model.init.path;
    out->threads = run->options.threads;
    out->planned_bytes = shd_session_plan(run->session)->allocated_bytes;
    out->tokens = run->job->train.micro_batch * run->options.world_size *
                  (run->job->model.family == SHD_JOB_MLP ? 1 : run->job->model.context);
    double start_ms = shd_clock_ms(), wait_ms = count_wait_ms(), known_ms = 0;
    shd_model_work_reset();
    for (int n = 0, counted = 0; n < MOST_STEPS && known_ms < MEASURE_MS; n++) {
        SHD_TRY(step(run, &result));
        if (n == 0) {
            out->loss = result.target_count > 0 ? result.loss : NAN;
            out->grad_norm = result.grad_norm;
            out->target_count = result.target_count;
            out->compute_ms = out->exposed_comm_ms = out->optimizer_ms = 0;
        }
        counted++;
        known_ms += result.rank_step.max_ms;
        out->step_ms = (shd_clock_ms() - start_ms) / counted;
        out->wait_ms = (count_wait_ms() - wait_ms) / counted;
        out->compute_ms += (result.compute_ms - out->compute_ms) / counted;
        out->exposed_comm_ms += (result.exposed_comm_ms - out->exposed_comm_ms) / counted;
        out->optimizer_ms += (result.optimizer_ms - out->optimizer_ms) / counted;
        if (n > 0 || known_ms > LONG_STEP_MS) continue;
        /* Begins anew, warm. */
        counted = 0;
        known_ms = 0;
        start_ms = shd_clock_ms();
        wait_ms = count_wait_ms();
        shd_model_work_reset();
    }
    const shd_model_work work = shd_model_work_get();
    out->products_gflops = work.ms > 0 ? work.flop / work.ms / 1e6 : 0;
    out->peak_bytes = result.peak_bytes;
    return SHERD_OK;
}

/* The same batch again and again. Every rank sees the same losses; that time is over, rank 0 says. */
static sherd_status try_overfit(trial_run *run, shd_trial_rank *out) {
    double start_ms = shd_clock_ms();
    sherd_step_result result = {0};
    while (out->overfit_steps < OVERFIT_STEPS && !(result.flags & FLAG_OVER)) {
        if (run->options.rank == 0 && shd_clock_ms() - start_ms > OVERFIT_MS)
            SHD_TRY(sherd_raise(run->session, FLAG_OVER));
        SHD_TRY(step(run, &result));
        if (out->overfit_steps++ == 0) out->overfit_first = result.loss;
        out->overfit_last = result.loss;
        out->overfit_ms = shd_clock_ms() - start_ms;
        if (result.target_count == 0 || result.loss <= shd_trial_goal(out->overfit_first)) break;
        if (out->overfit_steps == HOPE_STEPS && result.loss > HOPE * out->overfit_first) break;
    }
    return SHERD_OK;
}

static sherd_status try_compare(trial_run *run, shd_trial_bits *bits) {
    bits->tensor_count = shd_model_describe(run->model)->tensor_count;
    for (run->step = 0; run->step < SHD_TRIAL_STEPS; run->step++) {
        sherd_step_result result;
        int32_t ready;
        if (run->step > 0) SHD_TRY(shd_feed_next(run->feed, &run->target_count, &ready));
        SHD_TRY(step(run, &result));
        if (run->options.rank != 0) continue;
        bits->loss[run->step] = result.loss;
        bits->grad_norm[run->step] = result.grad_norm;
        bits->step_count = run->step + 1;
    }
    return SHERD_OK;
}

static sherd_status try_session(const shd_trial *trial, session_kind kind, const sherd_options *place,
                                shd_trial_board *board) {
    shd_trial_rank *out = &board->ranks[place->rank];
    double begun_ms = shd_clock_ms();
    trial_run run = {.trial = trial, .job = trial->job, .kind = kind};
    choose_options(&run, place);
    if (kind == KIND_COMPARE && place->rank == 0) run.bits = &board->bits;
    sherd_status status = open_run(&run);
    if (status == SHERD_OK && kind == KIND_STEP) status = try_step(&run, begun_ms, out);
    if (status == SHERD_OK && kind == KIND_OVERFIT) status = try_overfit(&run, out);
    if (status == SHERD_OK && kind == KIND_COMPARE) status = try_compare(&run, &board->bits);
    char cause[SHD_TRIAL_TEXT];
    snprintf(cause, sizeof cause, "%s", sherd_last_error());
    close_run(&run);
    return status == SHERD_OK ? SHERD_OK : shd_fail(status, "%s", cause);
}

static sherd_status try_collectives(const shd_trial *trial, const sherd_options *place, shd_trial_rank *out) {
    char rendezvous[NAME_BYTES];
    shd_pool *pool;
    snprintf(rendezvous, sizeof rendezvous, "%s/doctor", place->rendezvous ? place->rendezvous : "");
    SHD_TRY(shd_pool_create(trial->job ? shd_job_threads(trial->job) : 1, &pool));
    const shd_comm_config config = {.rank = place->rank,
                                    .world_size = place->world_size,
                                    .replicas = trial->job ? (int32_t)trial->job->shard.replicas : 1,
                                    .rendezvous = rendezvous,
                                    .timeout_s = MOST_WAIT_S,
                                    .start_timeout_s = MOST_START_S,
                                    .pool = pool};
    sherd_status status = shd_comm_selftest(&config, &out->comm);
    shd_pool_destroy(pool);
    return status;
}

static sherd_status run_phases(const shd_trial *trial, const sherd_options *place, shd_trial_board *board) {
    shd_trial_rank *out = &board->ranks[place->rank];
    out->phase = SHD_TRIAL_COLLECTIVES;
    if (trial->compare_batches == 0) SHD_TRY(try_collectives(trial, place, out));
    out->phase = SHD_TRIAL_STEP;
    if (trial->compare_batches > 0) {
        SHD_TRY(try_session(trial, KIND_COMPARE, place, board));
    } else if (trial->job) {
        SHD_TRY(try_session(trial, KIND_STEP, place, board));
        out->phase = SHD_TRIAL_OVERFIT;
        if (trial->overfit) SHD_TRY(try_session(trial, KIND_OVERFIT, place, board));
    }
    out->phase = SHD_TRIAL_DONE;
    return SHERD_OK;
}

sherd_status shd_trial_run(const shd_trial *trial, const sherd_options *place, shd_trial_board *board) {
    shd_trial_rank *out = &board->ranks[place->rank];
    out->program = shd_executable_hash();
    out->job = trial->job_hash;
    out->clock_ms = shd_trial_clock_ms();
    out->pid = getpid();
    sherd_status status = run_phases(trial, place, board);
    if (status != SHERD_OK) snprintf(out->text, sizeof out->text, "%s", sherd_last_error());
    out->status = status;
    return status;
}

double shd_trial_blind_loss(const shd_job *job) {
    if (job->model.family != SHD_JOB_MLP) return log((double)job->model.vocab_size);
    return job->model.loss == SHD_JOB_CROSS_ENTROPY ? log((double)job->model.outputs) : NAN;
}
