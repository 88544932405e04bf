/* The job loop. A step: read data, run the step program, evaluate when it is due, write the row, show it, and begin a
 * save when one is due: the row of a step is always in its file before a checkpoint with that step is complete, so
 * that a run that goes on from it misses none. Of the session it uses the public interface, and two things a trainer
 * outside would not need: its pool, so that a rank computes with one set of threads, and its plan, to log what runs.
 * */
#include "runtime/train/train.h"

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/session/setup.h"
#include "runtime/train/checks/checkup.h"
#include "runtime/train/checks/executable.h"
#include "runtime/train/job_data.h"
#include "runtime/train/job_place.h"
#include "runtime/train/job_run.h"
#include "runtime/train/records.h"
#include "runtime/train/rollback.h"
#include "runtime/train/row.h"
#include "runtime/watch/dump.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Told to all ranks with a step: one wants a checkpoint; rank 0 cannot write its rows; from bit FLAG_STOP_SHIFT on, why
 * one was asked to stop. */
enum { FLAG_SAVE = 1, FLAG_ROWS = 2, FLAG_STOP_SHIFT = 16 };

static shd_records records_of(const shd_job_run *run) {
    return (shd_records){.job = run->job, .session = run->session, .options = &run->options, .from = &run->from};
}

/* --- mathematics: the model's callbacks, with this run's data ----------------------------------------------------- */

static sherd_status forward(void *user, const sherd_view *view) {
    shd_job_run *run = user;
    if (view->unit == 0) {
        shd_batch batch = shd_feed_batch(run->training, view->micro_step);
        shd_model_bind(run->model, run->pool, &batch);
    }
    return shd_model_forward(run->model, view);
}

/* Passes on what this rank has been asked for: it takes effect on all ranks at the end of the step that is open. */
static sherd_status listen(shd_job_run *run) {
    uint32_t flags = 0;
    const shd_train_hooks *hooks = run->hooks;
    if (hooks->stopping) flags |= hooks->stopping(hooks->user) << FLAG_STOP_SHIFT;
    if ((hooks->save_asked && hooks->save_asked(hooks->user)) || shd_saver_wishes(&run->saver)) flags |= FLAG_SAVE;
    if (run->journal && shd_journal_status(run->journal) != SHERD_OK) flags |= FLAG_ROWS;
    return flags ? sherd_raise(run->session, flags) : SHERD_OK;
}

static sherd_status backward(void *user, const sherd_view *view) {
    shd_job_run *run = user;
    SHD_TRY(shd_model_backward(run->model, view));
    /* The last moment at which this step still can take it along: long ones are not waited for twice. */
    if (view->unit == 0 && view->micro_step == run->options.micro_steps - 1) SHD_TRY(listen(run));
    if (view->unit != shd_model_describe(run->model)->unit_count - 1) return SHERD_OK;
    /* The head has written the losses. */
    shd_batch batch = shd_feed_batch(run->training, view->micro_step);
    return shd_feed_add(run->training, run->session, run->model, &batch);
}

/* --- a step ------------------------------------------------------------------------------------------------------- */

static bool is_due(int64_t every, int64_t completed, int64_t last) {
    return every > 0 && (completed % every == 0 || completed == last);
}

static sherd_status evaluate_if_due(shd_job_run *run, shd_metrics_row *row) {
    const shd_job *job = run->job;
    if (!is_due(job->train.evaluate_every, run->summary.step, job->train.steps)) return SHERD_OK;
    sherd_evaluation found;
    SHD_TRY(
        shd_evaluate(run->session, run->model, run->pool, run->validation, &run->evaluation, &run->options, &found));
    row->validated = true;
    row->validation_loss = shd_row_loss(found.loss, found.target_count);
    row->validation_accuracy = shd_row_share(found.metrics[0], found.target_count);
    run->summary.validation_loss = row->validation_loss;
    if (row->classified) run->summary.validation_accuracy = row->validation_accuracy;
    return run->sample ? shd_sample_write(run->sample, run->session, run->summary.step) : SHERD_OK;
}

static sherd_status make_note(void *user, char **out) {
    const shd_job_run *run = user;
    shd_resume_place place = shd_job_run_place(run);
    return shd_resume_note(run->job, run->training_data, &place, &run->safety.state, out);
}

static sherd_status save_if_due(shd_job_run *run, bool asked) {
    bool last = run->summary.stopped || run->cut_short || run->summary.step == run->job->train.steps;
    return shd_saver_boundary(&run->saver, run->summary.step, asked, last);
}

/* Validation failed, on all ranks alike: what was trained is not lost by it. Returns `status`. */
static sherd_status end_unvalidated(shd_job_run *run, shd_metrics_row *row, bool nonfinite, sherd_status status) {
    char cause[1000];
    if (sherd_status_is_fatal(status)) return status;
    snprintf(cause, sizeof cause, "%s", sherd_last_error());
    shd_row_report(run, row, nonfinite, true);
    shd_saver_rescue(&run->saver, run->summary.step);
    /* Whoever asks where it failed: not in the save that came after. */
    shd_recorder_enter(shd_session_recorder(run->session), SHD_ACTIVITY_EVALUATION, run->summary.step - 1);
    return shd_fail(status, "%s", cause);
}

/* What to do when a step has diverged. */
static const char *find_advice(const shd_job_run *run) {
    if (!run->updated && run->summary.first_step == 0)
        return run->has_samples ? "nothing was updated yet: look at the inputs, data.input_scale and model.init"
                                : "nothing was updated yet: look at model.init";
    return run->job->train.clip > 0 ? "lower optimizer.lr" : "lower optimizer.lr or set train.clip";
}

/* A step that ends the run: its number as users count, from 1, and what to do. */
static sherd_status advise(const shd_job_run *run, int64_t step, sherd_status status) {
    if (status != SHERD_NUMERIC) return status;
    const char *cause = sherd_last_error(), *colon = strncmp(cause, "step ", 5) ? NULL : strstr(cause, ": ");
    return shd_fail(status, "step %lld/%lld: %s; its batch is in %s/alerts.jsonl; %s", (long long)step + 1,
                    (long long)run->job->train.steps, colon ? colon + 2 : cause, run->job->log.dir, find_advice(run));
}

/* Of the step that ends at shd_job_run_place(run). */
static shd_safety_place safety_place(const shd_job_run *run) {
    return (shd_safety_place){.first_sequence = shd_job_run_place(run).sequence - run->job->train.global_batch,
                              .saved_step = run->saver.saved_step};
}

/* The step program. A step that ends the run inside it has its alert and its row like any other. */
static sherd_status compute_step(shd_job_run *run, int64_t target_count, sherd_step_result *result) {
    const sherd_callbacks callbacks = {.size = sizeof callbacks, .forward = forward, .backward = backward, .user = run};
    sherd_status status = sherd_run_step(run->session, target_count, &callbacks, result);
    if (status != SHERD_OK && status != SHERD_NUMERIC) return status;
    run->summary.step++;
    run->summary.tokens_seen += shd_job_step_tokens(run->job);
    if (status != SHERD_OK) shd_session_found(run->session, result);
    run->summary.loss = shd_row_loss(result->loss, result->target_count);
    if (status == SHERD_OK) return SHERD_OK;
    char cause[1000];
    snprintf(cause, sizeof cause, "%s", sherd_last_error());
    const shd_safety_place place = safety_place(run);
    shd_safety_tell_failure(&run->safety, result, &place);
    shd_metrics_row row = shd_row_make(run, result);
    shd_row_report(run, &row, true, false);
    return advise(run, result->step, shd_fail(status, "%s", cause));
}

/* After its row: the step was bad, and ends the run, which saves nothing then, or takes it back. */
static sherd_status settle_bad(shd_job_run *run, const sherd_step_result *result, sherd_status verdict) {
    if (verdict == SHERD_OK) {
        SHD_TRY(advise(run, result->step, shd_job_run_roll_back(run, result, result->flags & FLAG_SAVE)));
        return run->summary.stopped || run->cut_short ? save_if_due(run, false) : SHERD_OK;
    }
    char cause[1000];
    snprintf(cause, sizeof cause, "%s", sherd_last_error());
    sherd_status status = shd_saver_settle(&run->saver);
    if (sherd_status_is_fatal(status)) return status;
    return advise(run, result->step, shd_fail(verdict, "%s", cause));
}

/* This rank's micro-batches of the next step. */
static sherd_status read_data(shd_job_run *run, int64_t *target_count) {
    shd_recorder *recorder = shd_session_recorder(run->session);
    int64_t step = run->summary.step, start_ns = shd_clock_ns();
    shd_recorder_enter(recorder, SHD_ACTIVITY_DATA, step);
    int64_t number = shd_recorder_add(recorder, &(shd_record){.queued_ns = start_ns,
                                                              .started_ns = start_ns,
                                                              .step = step,
                                                              .collective = SHD_RECORD_NO_COLLECTIVE,
                                                              .unit = -1,
                                                              .micro_step = -1,
                                                              .kind = SHD_RECORD_DATA});
    SHD_TRY(shd_feed_next(run->training, target_count, &run->data_ready));
    int64_t now_ns = shd_clock_ns();
    shd_recorder_end(recorder, number, now_ns);
    shd_recorder_enter(recorder, SHD_ACTIVITY_BOUNDARY, step - 1);
    run->data_ms = (double)(now_ns - start_ns) * 1e-6;
    return SHERD_OK;
}

static sherd_status run_step(shd_job_run *run) {
    int64_t target_count;
    SHD_TRY(read_data(run, &target_count));
    SHD_TRY(listen(run));
    sherd_step_result result;
    SHD_TRY(compute_step(run, target_count, &result));
    run->summary.skipped_count += result.skipped;
    run->updated = run->updated || !result.skipped;
    if (shd_safety_rolls_back(&run->safety, &result)) SHD_TRY(shd_saver_settle(&run->saver));
    const shd_safety_place place = safety_place(run);
    bool rolls_back;
    sherd_status verdict = shd_safety_conclude(&run->safety, &result, &place, &rolls_back);
    bool over = run->summary.step == run->job->train.steps && !rolls_back;
    run->summary.stopped = over ? 0 : result.flags >> FLAG_STOP_SHIFT;
    run->cut_short = (result.flags & FLAG_ROWS) && !over;
    const shd_records records = records_of(run);
    shd_records_step(&records, run->summary.step);
    shd_metrics_row row = shd_row_make(run, &result);
    bool good = verdict == SHERD_OK && !rolls_back;
    sherd_status status = good ? evaluate_if_due(run, &row) : SHERD_OK;
    if (status != SHERD_OK) return end_unvalidated(run, &row, result.nonfinite, status);
    shd_row_report(run, &row, result.nonfinite, good);
    return good ? save_if_due(run, result.flags & FLAG_SAVE) : settle_bad(run, &result, verdict);
}

/* Rows that could not be written end the run; a checkpoint less on a full disk may have made room for them. */
static sherd_status settle_rows(shd_job_run *run) {
    if (run->journal) return shd_journal_settle(run->journal, run->summary.step);
    return run->cut_short ? shd_fail(SHERD_PEER, "rank 0 cannot write metrics.jsonl, and ends the run") : SHERD_OK;
}

static sherd_status run_steps(shd_job_run *run) {
    run->row_end_ms = shd_clock_ms();
    run->saver.begun_ms = shd_clock_ms();
    while (run->summary.step < run->job->train.steps && !run->summary.stopped && !run->cut_short)
        SHD_TRY(run_step(run));
    return settle_rows(run);
}

/* --- the start ---------------------------------------------------------------------------------------------------- */

static sherd_status open_data(shd_job_run *run) {
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

static sherd_status start(shd_job_run *run) {
    SHD_TRY(shd_job_model(run->job, &run->model));
    shd_safety_init(&run->safety, run->job, run->training_data, &run->options, &run->from.safety);
    run->options.judge_user = &run->safety;
    SHD_TRY(shd_session_create_recorded(&run->options, shd_model_describe(run->model), run->hooks->recorder,
                                        &run->session));
    SHD_TRY(shd_job_place_model(run->model, run->session));
    run->pool = shd_session_pool(run->session);
    SHD_TRY(shd_executable_compare(run->session));
    /* Every rank has opened the files by itself: a glob may have found another file meanwhile. */
    SHD_TRY(shd_session_compare(run->session, "data", shd_dataset_fingerprint(run->training_data)));
    if (run->validation_data)
        SHD_TRY(shd_session_compare(run->session, "validation data", shd_dataset_fingerprint(run->validation_data)));
    SHD_TRY(shd_job_run_fill(run));
    run->summary.first_step = run->summary.step;
    run->safety.session = run->session;
    run->safety.state = run->from.safety;
    shd_session_set_lr_factor(run->session, run->safety.state.lr_factor);
    if (run->job->train.sample_tokens > 0)
        SHD_TRY(shd_sample_create(run->job, &run->options, run->model, run->pool, &run->sample));
    if (shd_job_run_speaks(run))
        SHD_TRY(shd_journal_open(run->job, shd_session_plan(run->session), run->from.place.step, &run->journal));
    int64_t saved_step = run->from.path && !run->from.weights_only ? run->from.place.step : -1;
    run->saver = (shd_saver){.job = run->job,
                             .session = run->session,
                             .hooks = run->hooks,
                             .speaks = shd_job_run_speaks(run),
                             .note = make_note,
                             .user = run,
                             .begun_step = saved_step,
                             .saved_step = saved_step};
    shd_saver_know_folder(&run->saver);
    if (run->validation_data)
        SHD_TRY(shd_job_create_feed(run->job, run->validation_data, &run->options, 1, &run->validation));
    return shd_job_run_start_feed(run);
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

/* Where rank 0 computes; or why that is not where there is more to be had. */
static void log_place(const shd_job_run *run) {
    shd_session_place place;
    shd_job_place chosen;
    if (shd_session_device(run->session, &place)) {
        shd_device_facts facts;
        place.device_ops->facts(place.device, &facts);
        shd_log(SHERD_LOG_INFO, "rank 0 computes on %s (%s %s)%s%s", facts.name, place.device_ops->name, facts.api,
                place.link ? ", ranks exchange by " : "", place.link ? place.link : "");
    } else if (shd_job_find_place(run->job, &chosen) == SHERD_OK && chosen.passed_over[0]) {
        shd_log(SHERD_LOG_WARN, "there is a GPU, but run.device: auto takes the CPU: %s", chosen.passed_over);
    }
}

static void log_start(const shd_job_run *run) {
    const shd_job *job = run->job;
    const shd_plan *plan = shd_session_plan(run->session);
    log_place(run);
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

static void warn_if_untrained(const shd_job_run *run) {
    int64_t steps = run->summary.step - run->summary.first_step;
    if (run->updated || steps == 0) return;
    shd_log(SHERD_LOG_WARN, "nothing was trained: %s skipped, as loss or gradients %s",
            steps == 1 ? "the only step was" : "all steps were",
            run->job->train.precision == SHERD_FP16
                ? "overflow fp16; lower train.loss_scale.initial, train more steps, or take train.precision: bf16"
                : "were not finite; look at the batches in alerts.jsonl, and at model.init");
}

/* Where the time of this rank's steps went. */
static void log_time(const shd_job_run *run) {
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

static sherd_status train(shd_job_run *run, const sherd_options *place) {
    if (place->world_size != run->options.world_size)
        return shd_fail(SHERD_CONFIG, "run.ranks is %d, but %d ranks were started", run->options.world_size,
                        place->world_size);
    SHD_TRY(open_data(run));
    SHD_TRY(shd_resume_find(run->job, run->training_data, shd_job_run_report(run), &run->from));
    if (run->from.named) SHD_TRY(shd_resume_copy(&run->from, &run->named));
    shd_job_run_take_place(run);
    run->summary.first_step = run->summary.step;
    if (run->from.place.step >= run->job->train.steps) {
        if (shd_job_run_speaks(run))
            shd_log(SHERD_LOG_INFO, "nothing to do: %s has all steps up to train.steps, %lld; raise it to go on",
                    run->from.path, (long long)run->job->train.steps);
        return SHERD_OK;
    }
    SHD_TRY(start(run));
    const shd_records records = records_of(run);
    if (shd_job_run_speaks(run)) log_start(run);
    shd_records_start(&records, run->summary.step);
    if (run->hooks->started) run->hooks->started(run->hooks->user, run->summary.step);
    shd_model_work_reset();
    SHD_TRY(run_steps(run));
    if (shd_job_run_speaks(run)) {
        warn_if_untrained(run);
        log_time(run);
    }
    shd_records_end(&records, &run->summary);
    return SHERD_OK;
}

/* A run that came to its end, or was stopped, all of whose checkpoints but the last may be missing. */
static sherd_status judge(shd_job_run *run) {
    run->summary.saves = run->saver.total;
    if (run->hooks->finished) run->hooks->finished(run->hooks->user, &run->summary);
    sherd_status status = shd_saver_verdict(&run->saver);
    if (status == SHERD_OK || !run->summary.stopped) return status;
    if (shd_job_run_speaks(run)) shd_log(SHERD_LOG_WARN, "%s", sherd_last_error());
    return SHERD_OK;
}

/* For whoever looks for what became of the others. The failure has been told already: of dumps that cannot be written a
 * warning is all that is left to say. */
static void leave_dumps(const shd_job_run *run) {
    const shd_recorder *recorder = run->session ? shd_session_recorder(run->session) : run->hooks->recorder;
    bool dumped;
    if (!recorder || !run->hooks->dump_dir) return;
    sherd_status status = shd_dump_after_failure(recorder, run->options.rank, run->hooks->dump_dir, &dumped);
    if (status != SHERD_OK) shd_log(SHERD_LOG_WARN, "%s", sherd_last_error());
    if (dumped && !run->hooks->recorder && shd_job_run_speaks(run))
        shd_log(SHERD_LOG_INFO, "what every rank was doing is in %s; 'sherd debug' reads it", run->hooks->dump_dir);
}

static void fini(shd_job_run *run) {
    shd_feed_destroy(run->training);
    shd_feed_destroy(run->validation);
    shd_journal_close(run->journal);
    shd_sample_destroy(run->sample);
    shd_job_end_session(run->model, run->session);
    shd_resume_fini(&run->from);
    shd_resume_fini(&run->named);
    shd_dataset_close(run->validation_data);
    shd_dataset_close(run->training_data);
}

sherd_status shd_train_run(const shd_job *job, const sherd_options *place, const shd_train_hooks *hooks) {
    static const shd_train_hooks none;
    shd_job_run run = {.job = job,
                       .hooks = hooks ? hooks : &none,
                       .summary = {.loss = NAN, .validation_loss = NAN, .validation_accuracy = NAN}};
    shd_job_options(job, &run.options);
    run.options.rank = place->rank;
    run.options.rendezvous = place->rendezvous;
    sherd_status status = train(&run, place);
    if (status == SHERD_OK) status = judge(&run);
    if (status != SHERD_OK && run.hooks->failed) run.hooks->failed(run.hooks->user, status);
    if (status != SHERD_OK) leave_dumps(&run);
    fini(&run);
    return status;
}

/* --- looking without starting ------------------------------------------------------------------------------------- */

sherd_status shd_train_check(const shd_job *job, bool tells, int64_t *first_step) {
    shd_checkup checkup;
    shd_checkup_init(&checkup, job);
    checkup.report = tells ? SHD_REPORT_DAMAGE : SHD_REPORT_NOTHING;
    sherd_status status = shd_checkup_run_quick(&checkup);
    if (status == SHERD_OK) *first_step = checkup.from.place.step;
    shd_checkup_fini(&checkup);
    return status;
}
