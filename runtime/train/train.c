/* The job loop. A step: read data, run the step program, evaluate when it is due, write the row, show it, and begin a
 * save when one is due: the row of a step is always in its file before a checkpoint with that step is complete, so that a
 * run that goes on from it misses none. Of the session it uses the public interface, and two things a trainer outside would not need: its pool, so
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
#include "runtime/train/fill.h"
#include "runtime/train/job_data.h"
#include "runtime/train/job_setup.h"
#include "runtime/train/preflight.h"
#include "runtime/train/resume.h"
#include "runtime/train/sample.h"
#include "runtime/train/saver.h"
#include "runtime/train/weights.h"

#include <math.h>
#include <stdio.h>
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
    shd_saver saver;
    shd_train_summary summary;
    sherd_status row_status; /* rank 0: why a row could not be written, and its words; OK: all were */
    char row_cause[1000];
    bool cut_short;        /* the run ends after this step because rank 0 cannot write rows */
    double row_end_ms;     /* when the last row was written, or the first step could begin */
    shd_metrics_row total; /* the times of all rows, summed */
    int64_t source_tokens[SHD_JOB_SOURCES], source_tokens_seen[SHD_JOB_SOURCES];
} job_run;

/* Told to all ranks with a step: one wants a checkpoint; rank 0 cannot write its rows; from bit FLAG_STOP_SHIFT on, why
 * one was asked to stop. */
enum { FLAG_SAVE = 1, FLAG_ROWS = 2, FLAG_STOP_SHIFT = 16 };

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

/* Passes on what this rank has been asked for: it takes effect on all ranks at the end of the step that is open. */
static sherd_status listen(job_run *run) {
    uint32_t flags = 0;
    const shd_train_hooks *hooks = run->hooks;
    if (hooks->stopping) flags |= hooks->stopping(hooks->user) << FLAG_STOP_SHIFT;
    if ((hooks->save_asked && hooks->save_asked(hooks->user)) || shd_saver_wishes(&run->saver)) flags |= FLAG_SAVE;
    if (run->row_status != SHERD_OK) flags |= FLAG_ROWS;
    return flags ? sherd_raise(run->session, flags) : SHERD_OK;
}

static sherd_status backward(void *user, const sherd_view *view) {
    job_run *run = user;
    SHD_TRY(shd_model_backward(run->model, view));
    /* The last moment at which this step still can take it along: long ones are not waited for twice. */
    if (view->unit == 0 && view->micro_step == run->options.micro_steps - 1) SHD_TRY(listen(run));
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
    if (!is_due(job->train.evaluate_every, run->summary.step, job->train.steps)) return SHERD_OK;
    sherd_evaluation found;
    SHD_TRY(
        shd_evaluate(run->session, run->model, run->pool, run->validation, &run->evaluation, &run->options, &found));
    row->validated = true;
    row->validation_loss = loss_of(found.loss, found.target_count);
    row->validation_accuracy = share_of(found.metrics[0], found.target_count);
    run->summary.validation_loss = row->validation_loss;
    if (row->classified) run->summary.validation_accuracy = row->validation_accuracy;
    return run->sample ? shd_sample_write(run->sample, run->session, run->summary.step) : SHERD_OK;
}

/* Writes the row, shows it, and starts the clock of the next one. A row that cannot be written ends the run, but only
 * when all ranks know of it, and have saved. */
static void report_row(job_run *run, shd_metrics_row *row) {
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
    if (run->metrics && run->row_status == SHERD_OK) {
        run->row_status = shd_metrics_write(run->metrics, row);
        if (run->row_status != SHERD_OK) snprintf(run->row_cause, sizeof run->row_cause, "%s", sherd_last_error());
    } else if (run->metrics) {
        shd_metrics_write(run->metrics, row); /* kept, with the one before */
    }
    if (!run->hooks->stepped) return;
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
                                 .peak_bytes = row->peak_bytes,
                                 .stopped = run->summary.stopped};
    run->hooks->stepped(run->hooks->user, &step);
}

static shd_resume_place place_of(const job_run *run) {
    int64_t begun = run->summary.step - run->from.place.step;
    return (shd_resume_place){.step = run->summary.step,
                              .sequence = run->from.place.sequence + begun * run->job->train.global_batch,
                              .tokens_seen = run->summary.tokens_seen};
}

static sherd_status make_note(void *user, char **out) {
    const job_run *run = user;
    shd_resume_place place = place_of(run);
    return shd_resume_note(run->job, run->training_data, &place, out);
}

static sherd_status save_if_due(job_run *run, bool asked) {
    bool last = run->summary.stopped || run->cut_short || run->summary.step == run->job->train.steps;
    return shd_saver_boundary(&run->saver, run->summary.step, asked, last);
}

/* Validation failed, on all ranks alike: what was trained is not lost by it. Returns `status`. */
static sherd_status end_unvalidated(job_run *run, shd_metrics_row *row, sherd_status status) {
    char cause[1000];
    if (sherd_status_is_fatal(status)) return status;
    snprintf(cause, sizeof cause, "%s", sherd_last_error());
    report_row(run, row);
    shd_saver_rescue(&run->saver, run->summary.step);
    return shd_fail(status, "%s", cause);
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
    SHD_TRY(listen(run));
    const sherd_callbacks callbacks = {.size = sizeof callbacks, .forward = forward, .backward = backward, .user = run};
    sherd_step_result result;
    SHD_TRY(advise(run, sherd_run_step(run->session, target_count, &callbacks, &result)));
    run->summary.step++;
    run->summary.tokens_seen += shd_job_step_tokens(run->job);
    run->summary.loss = loss_of(result.loss, result.target_count);
    run->summary.skipped_count += result.skipped;
    bool over = run->summary.step == run->job->train.steps;
    run->summary.stopped = over ? 0 : result.flags >> FLAG_STOP_SHIFT;
    run->cut_short = (result.flags & FLAG_ROWS) && !over;
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
                           .save_wait_ms = result.save_wait_ms + shd_saver_take_wait(&run->saver),
                           .peak_bytes = result.peak_bytes,
                           .data_ready = data_ready};
    if (result.skipped && is_first_rank(run))
        shd_log(SHERD_LOG_INFO, "step %lld is skipped: loss or gradients overflow fp16 at a loss scale of %g",
                (long long)run->summary.step, result.loss_scale);
    count_sources(run, place_of(run).sequence, &row);
    sherd_status status = evaluate_if_due(run, &row);
    if (status != SHERD_OK) return end_unvalidated(run, &row, status);
    report_row(run, &row);
    return save_if_due(run, result.flags & FLAG_SAVE);
}

/* Rows that could not be written end the run; a checkpoint less on a full disk may have made room for them. */
static sherd_status settle_rows(job_run *run) {
    if (run->row_status == SHERD_OK)
        return run->cut_short ? shd_fail(SHERD_PEER, "rank 0 cannot write metrics.jsonl, and ends the run") : SHERD_OK;
    bool written = shd_metrics_flush(run->metrics) == SHERD_OK;
    return shd_fail(run->row_status, "%s; the run ended after step %lld, which is saved%s", run->row_cause,
                    (long long)run->summary.step, written ? ", and the row was written then" : "");
}

static sherd_status run_steps(job_run *run) {
    run->row_end_ms = shd_clock_ms();
    run->saver.begun_ms = shd_clock_ms();
    while (run->summary.step < run->job->train.steps && !run->summary.stopped && !run->cut_short)
        SHD_TRY(run_step(run));
    return settle_rows(run);
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
    return shd_feed_start(run->training, place_of(run).sequence, job->train.steps - run->summary.step);
}

static void take_place(job_run *run) {
    run->summary.first_step = run->summary.step = run->from.place.step;
    run->summary.tokens_seen = run->from.place.tokens_seen;
}

static shd_resume_report report_of(const job_run *run) {
    return is_first_rank(run) ? SHD_REPORT_ALL : SHD_REPORT_NOTHING;
}

static sherd_status fill(job_run *run) {
    const shd_fill_config config = {.job = run->job,
                                    .dataset = run->training_data,
                                    .model = run->model,
                                    .session = run->session,
                                    .report = report_of(run)};
    SHD_TRY(shd_fill_session(&config, &run->from));
    take_place(run);
    return SHERD_OK;
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
    if (is_first_rank(run)) SHD_TRY(shd_metrics_open(run->job->log.dir, run->from.place.step, &run->metrics));
    int64_t saved_step = run->from.path && !run->from.weights_only ? run->from.place.step : -1;
    run->saver = (shd_saver){.job = run->job,
                             .session = run->session,
                             .hooks = run->hooks,
                             .speaks = is_first_rank(run),
                             .note = make_note,
                             .user = run,
                             .begun_step = saved_step,
                             .saved_step = saved_step};
    shd_saver_know_folder(&run->saver);
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
    if (run->from.weights_only)
        shd_log(SHERD_LOG_INFO, "starts at step 0 with the parameters of %s", run->from.path);
    else if (run->from.path)
        shd_log(SHERD_LOG_INFO, "resumed from %s: %lld of %lld steps are done", run->from.path,
                (long long)run->from.place.step, (long long)job->train.steps);
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
    SHD_TRY(shd_resume_find(run->job, run->training_data, report_of(run), &run->from));
    take_place(run);
    if (run->from.place.step >= run->job->train.steps) {
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

/* A run that came to its end, or was stopped, all of whose checkpoints but the last may be missing. */
static sherd_status judge(job_run *run) {
    run->summary.saves = run->saver.total;
    if (run->hooks->finished) run->hooks->finished(run->hooks->user, &run->summary);
    sherd_status status = shd_saver_verdict(&run->saver);
    if (status == SHERD_OK || !run->summary.stopped) return status;
    if (is_first_rank(run)) shd_log(SHERD_LOG_WARN, "%s", sherd_last_error());
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
    if (status == SHERD_OK) status = judge(&run);
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
    if (job->train.evaluate_every == 0 || run->from.place.step >= job->train.steps) return SHERD_OK;
    SHD_TRY(shd_job_create_feed(job, run->validation_data, &run->options, 1, &run->validation));
    for (int64_t index = 0; index < run->evaluation.micro_batch_count; index++) {
        int64_t counted;
        SHD_TRY(shd_feed_read_padded(run->validation, index, run->evaluation.sequence_count, &counted));
    }
    return SHERD_OK;
}

static sherd_status check_data(job_run *run, shd_resume_report report) {
    SHD_TRY(open_data(run));
    SHD_TRY(shd_dataset_sample(run->training_data));
    if (run->validation_data) SHD_TRY(shd_dataset_sample(run->validation_data));
    SHD_TRY(shd_resume_find(run->job, run->training_data, report, &run->from));
    return check_validation(run);
}

static sherd_status check_all(job_run *run, const shd_plan *plan, bool tells) {
    SHD_TRY(shd_preflight_memory(run->job, plan));
    SHD_TRY(check_init(run->job));
    SHD_TRY(check_data(run, tells ? SHD_REPORT_DAMAGE : SHD_REPORT_NOTHING));
    bool writes = run->from.place.step < run->job->train.steps;
    return writes ? shd_preflight_outputs(run->job, plan, tells) : SHERD_OK;
}

sherd_status shd_train_check(const shd_job *job, bool tells, int64_t *first_step) {
    job_run run = {.job = job};
    shd_plan *plan;
    shd_job_options(job, &run.options);
    SHD_TRY(shd_job_plan(job, (int32_t)job->shard.stage, 0, &plan));
    sherd_status status = check_all(&run, plan, tells);
    if (status == SHERD_OK) *first_step = run.from.place.step;
    shd_plan_destroy(plan);
    fini(&run);
    return status;
}
