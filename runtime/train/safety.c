#include "runtime/train/safety.h"

#include "io/alerts.h"
#include "io/events.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/session/setup.h"

#include <math.h>
#include <stdio.h>

void shd_safety_init(shd_safety *safety, const shd_job *job, const shd_dataset *dataset, const sherd_options *options,
                     const shd_safety_state *state) {
    *safety = (shd_safety){.job = job,
                           .dataset = dataset,
                           .options = options,
                           .speaks = options->rank == 0,
                           .state = *state,
                           .stragglers = {.factor = job->run.straggler_factor,
                                          .steps = (int32_t)job->run.straggler_steps,
                                          .rank_count = options->world_size},
                           .judged_step = -1};
}

/* --- outliers ----------------------------------------------------------------------------------------------------- */

/* A step of no target has neither loss nor gradient. */
static void examine(shd_safety *safety, const sherd_step_result *found) {
    double limit = safety->job->run.outlier_zscore;
    safety->judged_step = found->step;
    safety->loss_zscore = safety->grad_norm_zscore = 0;
    if (limit > 0 && found->target_count > 0 && isfinite(found->loss) && isfinite(found->grad_norm)) {
        safety->loss_zscore = shd_outlier_window_score(&safety->state.loss, found->loss);
        safety->grad_norm_zscore = shd_outlier_window_score(&safety->state.grad_norm, found->grad_norm);
    }
    safety->outlier = limit > 0 && (safety->loss_zscore > limit || safety->grad_norm_zscore > limit);
}

bool shd_safety_has_judge(const shd_job *job) {
    return job->run.outlier_zscore > 0 && job->run.on_outlier != SHD_ON_OUTLIER_WARN;
}

bool shd_safety_judge(void *user, const sherd_step_result *found) {
    shd_safety *safety = user;
    examine(safety, found);
    return safety->outlier && safety->job->run.on_outlier != SHD_ON_OUTLIER_WARN;
}

/* --- telling ------------------------------------------------------------------------------------------------------ */

typedef enum action { WARN, SKIP, ROLL_BACK, ABORT } action;
static const char *const action_texts[] = {"warn", "skip", "rollback", "abort"};

enum { TEXT_BYTES = 400 };

static void describe_nonfinite(const shd_safety *safety, const sherd_step_result *result, char text[TEXT_BYTES]) {
    char where[200];
    shd_session_describe_nonfinite(safety->session, result, where, sizeof where);
    if (safety->job->train.precision == SHERD_FP16)
        snprintf(text, TEXT_BYTES,
                 "loss or gradients overflow fp16 at a loss scale of %g, the least that train.loss_scale.minimum "
                 "allows; %s",
                 result->loss_scale, where);
    else
        snprintf(text, TEXT_BYTES, "loss is %g and gradient norm is %g; %s", result->loss, result->grad_norm, where);
}

static void describe(const shd_safety *safety, const sherd_step_result *result, char text[TEXT_BYTES]) {
    if (result->nonfinite)
        describe_nonfinite(safety, result, text);
    else
        snprintf(text, TEXT_BYTES,
                 "loss %.6g (z-score %.3g) and gradient norm %.6g (z-score %.3g) stand out from the last %lld steps",
                 result->loss, safety->loss_zscore, result->grad_norm, safety->grad_norm_zscore,
                 (long long)safety->job->run.outlier_window);
}

/* Which of the batch's examples is which. */
typedef struct batch {
    const shd_safety *safety;
    int64_t first;
} batch;

/* The rank and micro-step that run example `i` of a global batch: shd_mesh_micro_batch backwards. */
static void find_runner(const sherd_options *options, int64_t micro_batch, shd_alert_example *out) {
    int64_t split = options->world_size / options->replicas, block = split * options->micro_steps;
    out->micro_step = (int32_t)(micro_batch % block / split);
    out->rank = (int32_t)(micro_batch / block * split + micro_batch % split);
}

static shd_alert_example find_example(void *user, int64_t i) {
    const batch *from = user;
    const shd_safety *safety = from->safety;
    shd_source_place place = shd_dataset_locate(safety->dataset, from->first + i);
    shd_alert_example example = {
        .number = from->first + i, .file = place.file, .index = place.index, .token = place.token};
    find_runner(safety->options, i / safety->job->train.micro_batch, &example);
    return example;
}

static void write_alert(const shd_safety *safety, const sherd_step_result *result, int64_t first, int64_t in_row,
                        action done) {
    batch from = {.safety = safety, .first = first};
    char *const *units = shd_session_plan(safety->session)->unit_names;
    const shd_alert alert = {.step = result->step,
                             .outlier = !result->nonfinite,
                             .action = action_texts[done],
                             .loss = result->target_count > 0 ? result->loss : NAN,
                             .grad_norm = result->grad_norm,
                             .param_norm = result->param_norm,
                             .loss_zscore = safety->loss_zscore,
                             .grad_norm_zscore = safety->grad_norm_zscore,
                             .rank = result->nonfinite ? result->nonfinite_rank : -1,
                             .micro_step = result->nonfinite_micro_step,
                             .unit = result->nonfinite && result->nonfinite_unit >= 0 ? units[result->nonfinite_unit]
                                                                                      : NULL,
                             .in_row = in_row,
                             .example_count = safety->job->train.global_batch,
                             .example = find_example,
                             .user = &from};
    if (shd_alert_add(safety->job->log.dir, &alert) != SHERD_OK) shd_log(SHERD_LOG_WARN, "%s", sherd_last_error());
}

/* What was done, as the end of a sentence. */
static void describe_action(const shd_safety *safety, const shd_safety_place *place, int64_t in_row, action done,
                            char text[TEXT_BYTES]) {
    text[0] = 0;
    if (done == SKIP)
        snprintf(text, TEXT_BYTES, ": nothing is updated (%lld in a row; %lld end the run)", (long long)in_row,
                 (long long)safety->job->run.max_nonfinite);
    else if (done == ROLL_BACK && place->saved_step >= 0)
        snprintf(text, TEXT_BYTES, ": back to the checkpoint of step %lld, and on behind this step's batch",
                 (long long)place->saved_step);
    else if (done == ROLL_BACK)
        snprintf(text, TEXT_BYTES, ": nothing is saved yet, so back to the start, and on behind this step's batch");
}

static shd_event_kind event_kind(const sherd_step_result *result, action done) {
    if (done == ROLL_BACK) return SHD_EVENT_ROLLBACK;
    return result->nonfinite ? SHD_EVENT_SKIP : SHD_EVENT_OUTLIER;
}

/* Of a step that does not end the run: who ends one tells why. */
static void tell(const shd_safety *safety, const sherd_step_result *result, const shd_safety_place *place,
                 int64_t in_row, action done) {
    char what[TEXT_BYTES], then[TEXT_BYTES], text[3 * TEXT_BYTES];
    if (!safety->speaks) return;
    write_alert(safety, result, place->first_sequence, in_row, done);
    if (done == ABORT) return;
    describe(safety, result, what);
    describe_action(safety, place, in_row, done, then);
    snprintf(text, sizeof text, "step %lld: %s%s", (long long)result->step + 1, what, then);
    shd_log(SHERD_LOG_WARN, "%s; its batch is in %s/alerts.jsonl", text, safety->job->log.dir);
    int64_t step = done != ROLL_BACK ? result->step + 1 : place->saved_step > 0 ? place->saved_step : 0;
    shd_event_tell(safety->job->log.dir, event_kind(result, done), step, result->nonfinite_rank, "%s", text);
}

void shd_safety_tell_failure(shd_safety *safety, const sherd_step_result *result, const shd_safety_place *place) {
    tell(safety, result, place, safety->state.bad_in_row + 1, ABORT);
}

/* --- slow ranks --------------------------------------------------------------------------------------------------- */

/* "rank 3 takes 812 ms a step, rank 5 790 ms" */
static void describe_slow(const shd_stragglers *slow, char *text, size_t bytes) {
    size_t used = 0;
    for (int32_t r = 0; r < slow->rank_count && used < bytes; r++)
        if (slow->named >> r & 1)
            used += (size_t)snprintf(text + used, bytes - used, "%srank %d takes %.0f ms", used ? ", " : "", r,
                                     slow->work_ms[r]);
}

static void look_for_slow(shd_safety *safety, const sherd_step_result *result) {
    double step_ms[SHD_STRAGGLER_RANKS];
    char who[800], text[1000];
    shd_stragglers *slow = &safety->stragglers;
    for (int32_t r = 0; r < slow->rank_count; r++) step_ms[r] = shd_session_rank_step_ms(safety->session, r);
    if (!shd_stragglers_take(slow, step_ms, result->rank_step.median_ms)) return;
    if (slow->named == 0) {
        shd_log(SHERD_LOG_INFO, "step %lld: no rank is slow any more", (long long)result->step + 1);
        return;
    }
    describe_slow(slow, who, sizeof who);
    snprintf(text, sizeof text, "slow for %d steps: of work of its own %s a step, the median rank %.0f ms", slow->steps,
             who, slow->median_ms);
    shd_log(SHERD_LOG_WARN, "step %lld: %s", (long long)result->step + 1, text);
    shd_event_tell(safety->job->log.dir, SHD_EVENT_STRAGGLER, result->step + 1, __builtin_ctzll(slow->named), "%s",
                   text);
}

/* --- the verdict -------------------------------------------------------------------------------------------------- */

/* What the job wants done about such a step. */
static action choose(const shd_safety *safety, const sherd_step_result *result) {
    static const action of_nonfinite[] = {
        [SHD_ON_NONFINITE_SKIP] = SKIP, [SHD_ON_NONFINITE_ROLLBACK] = ROLL_BACK, [SHD_ON_NONFINITE_ABORT] = ABORT};
    static const action of_outlier[] = {[SHD_ON_OUTLIER_WARN] = WARN,
                                        [SHD_ON_OUTLIER_SKIP] = SKIP,
                                        [SHD_ON_OUTLIER_ROLLBACK] = ROLL_BACK,
                                        [SHD_ON_OUTLIER_ABORT] = ABORT};
    return result->nonfinite ? of_nonfinite[safety->job->run.on_nonfinite] : of_outlier[safety->job->run.on_outlier];
}

/* The how manieth rollback in a row one to `saved_step` is. */
static int64_t number_rollback(const shd_safety_state *state, int64_t saved_step) {
    return saved_step > state->rollback_step ? 1 : state->rollbacks_in_row + 1;
}

/* Counts it, and returns how many that makes in a row. A rollback counts when it is done: where it ends is known then.
 * */
static int64_t count(shd_safety *safety, const shd_safety_place *place, action wanted) {
    shd_safety_state *state = &safety->state;
    if (wanted == SKIP) return ++state->bad_in_row;
    return wanted == ROLL_BACK ? number_rollback(state, place->saved_step) : state->bad_in_row + 1;
}

/* That is no bad step, and no good one either. */
static void tell_overflow(const shd_safety *safety, const sherd_step_result *result) {
    char text[TEXT_BYTES];
    if (!safety->speaks) return;
    snprintf(text, sizeof text, "step %lld is skipped: loss or gradients overflow fp16 at a loss scale of %g",
             (long long)result->step + 1, result->loss_scale);
    shd_log(SHERD_LOG_INFO, "%s", text);
    shd_event_tell(safety->job->log.dir, SHD_EVENT_SKIP, result->step + 1, -1, "%s", text);
}

static void take_good(shd_safety *safety, const sherd_step_result *result) {
    if (result->skipped) {
        tell_overflow(safety, result);
        return;
    }
    safety->state.bad_in_row = 0;
    if (safety->job->run.outlier_zscore == 0 || result->target_count == 0) return;
    shd_outlier_window_add(&safety->state.loss, result->loss);
    shd_outlier_window_add(&safety->state.grad_norm, result->grad_norm);
}

static sherd_status end(const shd_safety *safety, const sherd_step_result *result, int64_t in_row, action wanted) {
    char text[TEXT_BYTES], why[120] = "";
    describe(safety, result, text);
    if (wanted != ABORT)
        snprintf(why, sizeof why, "; that is the last of %lld in a row (run.max_nonfinite)", (long long)in_row);
    return shd_fail(SHERD_NUMERIC, "step %lld: %s%s", (long long)result->step, text, why);
}

bool shd_safety_rolls_back(shd_safety *safety, const sherd_step_result *result) {
    if (safety->judged_step != result->step) examine(safety, result);
    return (result->nonfinite || safety->outlier) && choose(safety, result) == ROLL_BACK;
}

sherd_status shd_safety_conclude(shd_safety *safety, const sherd_step_result *result, const shd_safety_place *place,
                                 bool *rolls_back) {
    *rolls_back = false;
    if (safety->judged_step != result->step) examine(safety, result);
    safety->judged_step = -1;
    if (safety->speaks) look_for_slow(safety, result);
    if (!result->nonfinite && !safety->outlier) {
        take_good(safety, result);
        return SHERD_OK;
    }
    action wanted = choose(safety, result);
    int64_t in_row = wanted == WARN ? 1 : count(safety, place, wanted);
    bool ends = wanted == ABORT || (wanted != WARN && in_row >= safety->job->run.max_nonfinite);
    if (ends || wanted != ROLL_BACK) tell(safety, result, place, in_row, ends ? ABORT : wanted);
    if (ends) return end(safety, result, in_row, wanted);
    if (wanted == WARN) take_good(safety, result);
    *rolls_back = wanted == ROLL_BACK;
    return SHERD_OK;
}

sherd_status shd_safety_go_back(shd_safety *safety, const sherd_step_result *result, const shd_safety_place *place,
                                const shd_safety_state *then) {
    shd_safety_state *state = &safety->state;
    state->rollbacks_in_row = number_rollback(state, place->saved_step);
    state->rollback_step = place->saved_step;
    bool ends = state->rollbacks_in_row >= safety->job->run.max_nonfinite;
    tell(safety, result, place, state->rollbacks_in_row, ends ? ABORT : ROLL_BACK);
    if (ends) return end(safety, result, state->rollbacks_in_row, ROLL_BACK);
    state->loss = then->loss;
    state->grad_norm = then->grad_norm;
    state->bad_in_row = then->bad_in_row;
    state->lr_factor *= safety->job->run.rollback_lr_factor;
    return SHERD_OK;
}
