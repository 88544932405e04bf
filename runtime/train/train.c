/* The job loop. A step: read data, run the step program, evaluate when it is due, write the row, show it, save when it
 * is due. Of the session it uses the public interface, and two things a trainer outside would not need: its pool, so
 * that a rank computes with one set of threads, and its plan, to log what runs. */
#include "runtime/train/train.h"

#include "io/metrics.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/session/setup.h"
#include "runtime/train/evaluate.h"
#include "runtime/train/feed.h"
#include "runtime/train/job_data.h"
#include "runtime/train/job_setup.h"
#include "runtime/train/preflight.h"
#include "runtime/train/resume.h"
#include "runtime/train/sample.h"
#include "runtime/train/weights.h"

#include <math.h>
#include <string.h>

/* A run, from its start to its end. */
typedef struct job_run {
    const shd_job *job;
    const shd_train_hooks *hooks;
    sherd_options options;
    bool has_samples; /* the data are samples of this shape, else tokens */
    shd_sample_shape samples;
    shd_dataset *training_data, *validation_data; /* validation: NULL without one */
    shd_feed *training, *validation;
    shd_evaluation_plan evaluation;
    shd_model *model;
    sherd_session *session;
    shd_pool *pool;       /* the session's */
    shd_sample *sample;   /* NULL: no texts are wanted */
    shd_metrics *metrics; /* rank 0 */
    shd_resume from;
    shd_train_summary summary;
    double row_end_ms;     /* when the last row was written, or the first step could begin */
    double save_wait_ms;   /* since then */
    shd_metrics_row total; /* the times of all rows, summed */
    int64_t source_tokens[SHD_JOB_SOURCES], source_tokens_seen[SHD_JOB_SOURCES];
} job_run;

/* Told to all ranks with a step: one was asked to stop. */
enum { FLAG_STOP = 1 };

static bool is_first_rank(const job_run *run) { return run->options.rank == 0; }

/* --- mathematics: the model's callbacks, with this run's data ----------------------------------------------------- */

static sherd_status forward(void *user, const sherd_view *view) {
    job_run *run = user;
    if (view->unit == 0) {
        shd_batch batch = shd_feed_batch(run->training, view->micro_step);
        shd_model_bind(run->model, run->pool, &batch);
    }
    return shd_model_forward(run->model, view);
}

static sherd_status backward(void *user, const sherd_view *view) {
    job_run *run = user;
    SHD_TRY(shd_model_backward(run->model, view));
    if (view->unit != shd_model_describe(run->model)->unit_count - 1) return SHERD_OK;
    /* The head has written the losses. */
    shd_batch batch = shd_feed_batch(run->training, view->micro_step);
    return shd_feed_add(run->training, run->session, &batch);
}

/* --- a step ------------------------------------------------------------------------------------------------------- */

static bool is_due(int64_t every, int64_t completed, int64_t last) {
    return every > 0 && (completed % every == 0 || completed == last);
}

/* The mean of no targets is no number, and no loss of 0, which sessions tell. */
static double loss_of(double mean, int64_t targets) { return targets > 0 ? mean : NAN; }
static double share_of(double correct, int64_t targets) { return targets > 0 ? correct / (double)targets : NAN; }

static sherd_status evaluate_if_due(job_run *run, shd_metrics_row *row) {
    const shd_job *job = run->job;
    row->validated = is_due(job->train.evaluate_every, run->summary.step, job->train.steps);
    if (!row->validated) return SHERD_OK;
    sherd_evaluation found;
    SHD_TRY(
        shd_evaluate(run->session, run->model, run->pool, run->validation, &run->evaluation, &run->options, &found));
    row->validation_loss = loss_of(found.loss, found.target_count);
    row->validation_accuracy = share_of(found.metrics[0], found.target_count);
    run->summary.validation_loss = row->validation_loss;
    if (row->classified) run->summary.validation_accuracy = row->validation_accuracy;
    return run->sample ? shd_sample_write(run->sample, run->session, run->summary.step) : SHERD_OK;
}

/* Writes the row, shows it, and starts the clock of the next one. */
static sherd_status report_row(job_run *run, shd_metrics_row *row) {
    double now_ms = shd_clock_ms();
    double known_ms = row->data_ms + row->compute_ms + row->exposed_comm_ms + row->optimizer_ms + row->save_wait_ms;
    row->other_ms = fmax(now_ms - run->row_end_ms - known_ms, 0);
    run->row_end_ms = now_ms;
    run->total.data_ms += row->data_ms;
    run->total.compute_ms += row->compute_ms;
    run->total.exposed_comm_ms += row->exposed_comm_ms;
    run->total.optimizer_ms += row->optimizer_ms;
    run->total.save_wait_ms += row->save_wait_ms;
    run->total.other_ms += row->other_ms;
    run->save_wait_ms = 0;
    if (run->metrics) SHD_TRY(shd_metrics_write(run->metrics, row));
    if (!run->hooks->stepped) return SHERD_OK;
    const shd_train_step step = {.step = run->summary.step,
                                 .loss = row->loss,
                                 .grad_norm = row->grad_norm,
                                 .lr = row->lr,
                                 .loss_scale = row->loss_scale > 0 ? row->loss_scale : 1,
                                 .skipped = row->skipped,
                                 .samples = run->has_samples,
                                 .classified = row->classified,
                                 .validated = row->validated,
                                 .accuracy = row->classified ? row->accuracy : NAN,
                                 .validation_loss = row->validated ? row->validation_loss : NAN,
                                 .validation_accuracy =
                                     row->validated && row->classified ? row->validation_accuracy : NAN,
                                 .tokens = row->tokens,
                                 .step_ms = shd_metrics_step_ms(row),
                                 .peak_bytes = row->peak_bytes};
    run->hooks->stepped(run->hooks->user, &step);
    return SHERD_OK;
}

/* The number of the sequence that the next step begins with. */
static int64_t next_sequence(const job_run *run) {
    return run->from.sequence + (run->summary.step - run->from.step) * run->job->train.global_batch;
}

static sherd_status save_if_due(job_run *run) {
    const shd_job *job = run->job;
    int64_t step = run->summary.step;
    if (step != job->train.steps && !is_due(job->checkpoint.every, step, job->train.steps)) return SHERD_OK;
    double start_ms = shd_clock_ms();
    char *note;
    SHD_TRY(shd_resume_note(job, run->training_data, next_sequence(run), run->summary.tokens_seen, &note));
    sherd_status status = sherd_session_save(run->session, job->checkpoint.dir, note);
    shd_free(note);
    SHD_TRY(status);
    run->save_wait_ms += shd_clock_ms() - start_ms;
    if (run->hooks->saved) run->hooks->saved(run->hooks->user, step);
    return SHERD_OK;
}

/* What each source of a mixture has given, up to sequence number `end` and among the last step's. */
static void count_sources(job_run *run, int64_t end, shd_metrics_row *row) {
    int32_t count = shd_dataset_source_count(run->training_data);
    if (count == 1) return;
    for (int32_t i = 0; i < count; i++) {
        int64_t drawn = shd_dataset_drawn(run->training_data, i, end);
        int64_t before = shd_dataset_drawn(run->training_data, i, end - run->job->train.global_batch);
        run->source_tokens_seen[i] = drawn * run->job->model.context;
        run->source_tokens[i] = (drawn - before) * run->job->model.context;
    }
    row->source_count = count;
    row->source_tokens = run->source_tokens;
    row->source_tokens_seen = run->source_tokens_seen;
}

/* What to do when a step has diverged. The first one has been through no update. */
static const char *find_advice(const job_run *run) {
    if (run->summary.step == 0)
        return run->has_samples ? "nothing was updated yet: look at the inputs, data.input_scale and model.init"
                                : "nothing was updated yet: look at model.init";
    return run->job->train.clip > 0 ? "lower optimizer.lr" : "lower optimizer.lr or set train.clip";
}

/* A step that diverged: its number as users count, from 1, and what to do. */
static sherd_status advise(const job_run *run, sherd_status status) {
    if (status != SHERD_NUMERIC) return status;
    const char *cause = sherd_last_error(), *colon = strncmp(cause, "step ", 5) ? NULL : strstr(cause, ": ");
    return shd_fail(status, "step %lld/%lld: %s; %s", (long long)run->summary.step + 1,
                    (long long)run->job->train.steps, colon ? colon + 2 : cause, find_advice(run));
}

static sherd_status run_step(job_run *run) {
    double start_ms = shd_clock_ms();
    int64_t target_count;
    int32_t data_ready;
    SHD_TRY(shd_feed_next(run->training, &target_count, &data_ready));
    double data_ms = shd_clock_ms() - start_ms;
    if (run->hooks->stopping && run->hooks->stopping(run->hooks->user)) SHD_TRY(sherd_raise(run->session, FLAG_STOP));
    const sherd_callbacks callbacks = {.size = sizeof callbacks, .forward = forward, .backward = backward, .user = run};
    sherd_step_result result;
    SHD_TRY(advise(run, sherd_run_step(run->session, target_count, &callbacks, &result)));
    run->summary.step++;
    run->summary.tokens_seen += shd_job_step_tokens(run->job);
    run->summary.loss = loss_of(result.loss, result.target_count);
    run->summary.skipped_count += result.skipped;
    run->summary.stopped = (result.flags & FLAG_STOP) && run->summary.step < run->job->train.steps;
    shd_metrics_row row = {.step = result.step,
                           .loss = run->summary.loss,
                           .grad_norm = result.grad_norm,
                           .lr = result.lr,
                           .loss_scale = run->job->train.precision == SHERD_FP16 ? result.loss_scale : 0,
                           .skipped = result.skipped,
                           .classified = run->has_samples && run->samples.classes,
                           .accuracy = share_of(result.metrics[0], result.target_count),
                           .items = shd_job_items(run->job),
                           .tokens = shd_job_step_tokens(run->job),
                           .tokens_seen = run->summary.tokens_seen,
                           .data_ms = data_ms,
                           .compute_ms = result.compute_ms,
                           .exposed_comm_ms = result.exposed_comm_ms,
                           .optimizer_ms = result.optimizer_ms,
                           .save_wait_ms = run->save_wait_ms,
                           .peak_bytes = result.peak_bytes,
                           .data_ready = data_ready};
    if (result.skipped && is_first_rank(run))
        shd_log(SHERD_LOG_INFO, "step %lld is skipped: loss or gradients overflow fp16 at a loss scale of %g",
                (long long)run->summary.step, result.loss_scale);
    count_sources(run, next_sequence(run), &row);
    SHD_TRY(evaluate_if_due(run, &row));
    SHD_TRY(report_row(run, &row));
    return save_if_due(run);
}

static sherd_status run_steps(job_run *run) {
    run->row_end_ms = shd_clock_ms();
    while (run->summary.step < run->job->train.steps && !run->summary.stopped) SHD_TRY(run_step(run));
    return SHERD_OK;
}

/* --- the start ---------------------------------------------------------------------------------------------------- */

static sherd_status open_data(job_run *run) {
    const shd_job *job = run->job;
    run->has_samples = shd_job_samples(job, &run->samples);
    SHD_TRY(shd_job_open_training(job, &run->training_data));
    if (job->data.validation.count == 0) return SHERD_OK;
    SHD_TRY(shd_job_open_validation(job, &run->validation_data));
    int64_t available = shd_dataset_sequence_count(run->validation_data);
    run->evaluation = shd_evaluation_plan_make(available, job->train.evaluate_sequences, job->train.micro_batch,
                                               run->options.world_size);
    if (job->train.evaluate_every > 0) run->options.eval_micro_steps = run->evaluation.micro_steps;
    return SHERD_OK;
}

static sherd_status start_feeds(job_run *run) {
    const shd_job *job = run->job;
    if (run->validation_data)
        SHD_TRY(shd_job_create_feed(job, run->validation_data, &run->options, 1, &run->validation));
    SHD_TRY(shd_job_create_feed(job, run->training_data, &run->options, run->options.micro_steps, &run->training));
    return shd_feed_start(run->training, next_sequence(run), job->train.steps - run->summary.step);
}

static sherd_status fill(job_run *run) {
    const shd_job *job = run->job;
    if (run->from.path) return sherd_session_load(run->session, run->from.path, NULL);
    if (!job->model.init.path) {
        shd_model_random random = {.model = run->model, .seed = (uint64_t)job->train.seed};
        return sherd_session_fill(run->session, shd_model_fill_random, &random);
    }
    shd_weights_file *file;
    SHD_TRY(shd_weights_file_open(job->model.init.path, run->model, &file));
    sherd_status status = sherd_session_fill(run->session, shd_weights_file_fill, file);
    shd_weights_file_close(file);
    return status;
}

static sherd_status start(job_run *run) {
    SHD_TRY(shd_job_model(run->job, &run->model));
    SHD_TRY(sherd_session_create(&run->options, shd_model_describe(run->model), &run->session));
    run->pool = shd_session_pool(run->session);
    /* Every rank has opened the files by itself: a glob may have found another file meanwhile. */
    SHD_TRY(shd_session_compare(run->session, "data", shd_dataset_fingerprint(run->training_data)));
    if (run->validation_data)
        SHD_TRY(shd_session_compare(run->session, "validation data", shd_dataset_fingerprint(run->validation_data)));
    SHD_TRY(fill(run));
    if (run->job->train.sample_tokens > 0)
        SHD_TRY(shd_sample_create(run->job, &run->options, run->model, run->pool, &run->sample));
    if (is_first_rank(run)) SHD_TRY(shd_metrics_open(run->job->log.dir, run->from.step, &run->metrics));
    return start_feeds(run);
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

static void log_start(const job_run *run) {
    const shd_job *job = run->job;
    const shd_plan *plan = shd_session_plan(run->session);
    shd_log(SHERD_LOG_INFO,
            "training %s: %lld parameters, %d rank%s%s x %d thread%s, stage %d, gather %s%s, sums in fixed order",
            job->top.name, (long long)plan->parameter_count, run->options.world_size,
            run->options.world_size == 1 ? "" : "s", shd_mesh_text(&plan->policy).text, run->options.threads,
            run->options.threads == 1 ? "" : "s", run->options.stage, shd_gather_text(&plan->policy),
            shd_precision_text(&plan->policy).text);
    shd_dataset_log(run->training_data);
    if (run->from.path)
        shd_log(SHERD_LOG_INFO, "resumed from %s: %lld of %lld steps are done", run->from.path,
                (long long)run->from.step, (long long)job->train.steps);
}

static void warn_if_untrained(const job_run *run) {
    int64_t steps = run->summary.step - run->summary.first_step;
    if (run->summary.skipped_count < steps || steps == 0) return;
    shd_log(
        SHERD_LOG_WARN,
        "nothing was trained: %s skipped, as loss or gradients overflow fp16; lower train.loss_scale.initial, train "
        "more steps, or take train.precision: bf16",
        steps == 1 ? "the only step was" : "all steps were");
}

/* Where the time of this rank's steps went. */
static void log_time(const job_run *run) {
    const shd_metrics_row *total = &run->total;
    double all_ms = shd_metrics_step_ms(total);
    shd_model_work products = shd_model_work_get();
    if (all_ms <= 0 || products.ms <= 0) return;
    shd_log(SHERD_LOG_INFO,
            "rank 0 spent %.1f s in steps: %.1f%% computing (%.1f%% in products, at %.1f GFLOP/s), %.1f%% waiting for "
            "communication, %.1f%% in the optimizer, %.1f%% elsewhere",
            all_ms / 1e3, 100 * total->compute_ms / all_ms, 100 * products.ms / all_ms,
            products.flop / products.ms / 1e6, 100 * total->exposed_comm_ms / all_ms,
            100 * total->optimizer_ms / all_ms,
            100 * (total->data_ms + total->save_wait_ms + total->other_ms) / all_ms);
}

static sherd_status train(job_run *run, const sherd_options *place) {
    if (place->world_size != run->options.world_size)
        return shd_fail(SHERD_CONFIG, "run.ranks is %d, but %d ranks were started", run->options.world_size,
                        place->world_size);
    SHD_TRY(open_data(run));
    SHD_TRY(shd_resume_find(run->job, run->training_data, is_first_rank(run), &run->from));
    run->summary.first_step = run->summary.step = run->from.step;
    run->summary.tokens_seen = run->from.tokens_seen;
    if (run->from.step >= run->job->train.steps) {
        if (is_first_rank(run))
            shd_log(SHERD_LOG_INFO, "nothing to do: %s has all steps up to train.steps, %lld; raise it to go on",
                    run->from.path, (long long)run->job->train.steps);
        return SHERD_OK;
    }
    SHD_TRY(start(run));
    if (is_first_rank(run)) log_start(run);
    if (run->hooks->started) run->hooks->started(run->hooks->user, run->summary.step);
    shd_model_work_reset();
    SHD_TRY(run_steps(run));
    if (is_first_rank(run)) {
        warn_if_untrained(run);
        log_time(run);
    }
    return SHERD_OK;
}

static void fini(job_run *run) {
    shd_feed_destroy(run->training);
    shd_feed_destroy(run->validation);
    shd_metrics_close(run->metrics);
    shd_sample_destroy(run->sample);
    sherd_session_destroy(run->session);
    shd_model_destroy(run->model);
    shd_resume_fini(&run->from);
    shd_dataset_close(run->validation_data);
    shd_dataset_close(run->training_data);
}

sherd_status shd_train_run(const shd_job *job, const sherd_options *place, const shd_train_hooks *hooks) {
    static const shd_train_hooks none;
    job_run run = {.job = job,
                   .hooks = hooks ? hooks : &none,
                   .summary = {.loss = NAN, .validation_loss = NAN, .validation_accuracy = NAN}};
    shd_job_options(job, &run.options);
    run.options.rank = place->rank;
    run.options.rendezvous = place->rendezvous;
    sherd_status status = train(&run, place);
    if (status == SHERD_OK && run.hooks->finished) run.hooks->finished(run.hooks->user, &run.summary);
    if (status != SHERD_OK && run.hooks->failed) run.hooks->failed(run.hooks->user, status);
    fini(&run);
    return status;
}

/* --- looking without starting ------------------------------------------------------------------------------------- */

static sherd_status check_init(const shd_job *job) {
    shd_model *model;
    shd_weights_file *file;
    if (!job->model.init.path) return SHERD_OK;
    SHD_TRY(shd_job_model(job, &model));
    sherd_status status = shd_weights_file_open(job->model.init.path, model, &file);
    if (status == SHERD_OK) shd_weights_file_close(file);
    shd_model_destroy(model);
    return status;
}

/* Reads all that a validation of this job will read: a bad row would end the run at its first validation, and its steps
 * would be lost. */
static sherd_status check_validation(job_run *run) {
    const shd_job *job = run->job;
    if (job->train.evaluate_every == 0 || run->from.step >= job->train.steps) return SHERD_OK;
    SHD_TRY(shd_job_create_feed(job, run->validation_data, &run->options, 1, &run->validation));
    for (int64_t index = 0; index < run->evaluation.micro_batch_count; index++) {
        int64_t counted;
        SHD_TRY(shd_feed_read_padded(run->validation, index, run->evaluation.sequence_count, &counted));
    }
    return SHERD_OK;
}

static sherd_status check_data(job_run *run) {
    SHD_TRY(open_data(run));
    SHD_TRY(shd_dataset_sample(run->training_data));
    if (run->validation_data) SHD_TRY(shd_dataset_sample(run->validation_data));
    SHD_TRY(shd_resume_find(run->job, run->training_data, false, &run->from));
    return check_validation(run);
}

static sherd_status check_all(job_run *run, const shd_plan *plan) {
    SHD_TRY(shd_preflight_memory(run->job, plan));
    SHD_TRY(check_init(run->job));
    SHD_TRY(check_data(run));
    bool writes = run->from.step < run->job->train.steps;
    return writes ? shd_preflight_outputs(run->job, plan) : SHERD_OK;
}

sherd_status shd_train_check(const shd_job *job, int64_t *first_step) {
    job_run run = {.job = job};
    shd_plan *plan;
    shd_job_options(job, &run.options);
    SHD_TRY(shd_job_plan(job, (int32_t)job->shard.stage, 0, &plan));
    sherd_status status = check_all(&run, plan);
    if (status == SHERD_OK) *first_step = run.from.step;
    shd_plan_destroy(plan);
    fini(&run);
    return status;
}
