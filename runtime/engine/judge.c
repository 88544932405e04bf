/* VERDICT: what every rank tells all others once a step, and what they make of it, each the same: loss and norms, whether
 * anything is updated, who saw the first number that is not finite, and how long the ranks took. */
#include "runtime/base/clock.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/engine/on_device.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- who was it --------------------------------------------------------------------------------------------------- */

int32_t shd_engine_current_micro_step(const shd_engine *engine) {
    for (int32_t i = engine->due ? engine->next : engine->next - 1; i >= 0; i--)
        if (engine->program->instructions[i].micro_step >= 0) return engine->program->instructions[i].micro_step;
    return 0;
}

void shd_engine_suspect_loss(shd_engine *engine, int32_t micro_step) {
    if (engine->loss_suspect.rank >= 0) return;
    engine->loss_suspect =
        (shd_suspect){.rank = engine->config.plan->policy.rank, .micro_step = micro_step, .unit = -1};
}

/* Whether `a` comes before `b`: in an earlier micro-step, then on a lower rank, then in a unit whose backward comes
 * first. */
static bool precedes(const shd_suspect *a, const shd_suspect *b) {
    if (a->rank < 0 || b->rank < 0) return a->rank >= 0;
    if (a->micro_step != b->micro_step) return a->micro_step < b->micro_step;
    return a->rank != b->rank ? a->rank < b->rank : a->unit > b->unit;
}

void shd_engine_suspect_gradient(shd_engine *engine, const shd_instruction *reduce) {
    uint64_t places = shd_comm_take_nonfinite(engine->config.comm);
    if (places) shd_engine_suspect_places(engine, places, reduce->micro_step, reduce->unit_index);
}

void shd_engine_suspect_places(shd_engine *engine, uint64_t places, int32_t micro_step, int32_t unit_index) {
    int32_t place = 0;
    while (!(places >> place & 1)) place++;
    const shd_policy *policy = &engine->config.plan->policy;
    const shd_suspect found = {
        .rank = policy->rank - shd_policy_place(policy) + place, .micro_step = micro_step, .unit = unit_index};
    if (precedes(&found, &engine->gradient_suspect)) engine->gradient_suspect = found;
}

/* Loss comes before gradients: those of a loss that is not finite are not either, of every unit. */
static void find_suspect(shd_engine *engine) {
    shd_suspect loss = engine->verdicts[0].loss_suspect, gradient = engine->verdicts[0].gradient_suspect;
    for (int32_t r = 1; r < engine->config.plan->policy.world_size; r++) {
        const shd_verdict *verdict = &engine->verdicts[r];
        if (precedes(&verdict->loss_suspect, &loss)) loss = verdict->loss_suspect;
        if (precedes(&verdict->gradient_suspect, &gradient)) gradient = verdict->gradient_suspect;
    }
    const shd_suspect *first = loss.rank >= 0 ? &loss : &gradient;
    engine->result.nonfinite_rank = first->rank;
    engine->result.nonfinite_micro_step = first->micro_step;
    engine->result.nonfinite_unit = first->unit;
}

void shd_nonfinite_describe(const shd_plan *plan, const sherd_step_result *result, char *out, size_t bytes) {
    if (result->nonfinite_rank < 0)
        snprintf(out, bytes, "every rank's part is finite, their sum is not");
    else if (result->nonfinite_unit < 0)
        snprintf(out, bytes, "first in rank %d's loss, in micro-step %d", result->nonfinite_rank,
                 result->nonfinite_micro_step);
    else
        snprintf(out, bytes, "first in rank %d's gradient of %s, in micro-step %d", result->nonfinite_rank,
                 plan->unit_names[result->nonfinite_unit], result->nonfinite_micro_step);
}

/* --- how long they took ------------------------------------------------------------------------------------------- */

static sherd_rank_times summarize(const shd_engine *engine, bool waits) {
    int32_t count = engine->config.plan->policy.world_size;
    double sorted[SHD_COMM_MAX_RANKS];
    sherd_rank_times times = {.max_ms = -1};
    for (int32_t r = 0; r < count; r++) {
        double value = waits ? engine->verdicts[r].wait_ms : engine->verdicts[r].step_ms;
        if (value > times.max_ms) {
            times.max_ms = value;
            times.max_rank = r;
        }
        int32_t at = r;
        for (; at > 0 && sorted[at - 1] > value; at--) sorted[at] = sorted[at - 1];
        sorted[at] = value;
    }
    times.min_ms = sorted[0];
    times.median_ms = sorted[(count - 1) / 2];
    return times;
}

/* The work of this rank since its last verdict. */
static double find_step_ms(const shd_engine *engine, double now_ms) {
    const shd_rank_clock *clock = &engine->clock;
    double since_ms = clock->since_ms > 0 ? clock->since_ms : clock->begin_ms;
    return fmax(now_ms - since_ms - clock->wait_ms - clock->other_ms, 0);
}

double shd_engine_rank_step_ms(const shd_engine *engine, int32_t rank) { return engine->verdicts[rank].step_ms; }

/* --- what it means ------------------------------------------------------------------------------------------------ */

/* A step that is not finite, and that no smaller loss scale mends. */
static sherd_status fail_nonfinite(const shd_engine *engine) {
    const sherd_step_result *result = &engine->result;
    char suspect[200];
    shd_nonfinite_describe(engine->config.plan, result, suspect, sizeof suspect);
    if (engine->config.plan->policy.parameter_dtype == SHERD_FP16)
        return shd_fail(SHERD_NUMERIC, "step %lld: %s; %s", (long long)engine->step, sherd_last_error(), suspect);
    return shd_fail(SHERD_NUMERIC, "step %lld: loss is %g and gradient norm is %g; %s", (long long)engine->step,
                    result->loss, result->grad_norm, suspect);
}

/* Whether anything is updated, and what becomes of the loss scale. */
static sherd_status judge(shd_engine *engine) {
    const shd_engine_config *config = &engine->config;
    sherd_step_result *result = &engine->result;
    bool finite = isfinite(result->loss) && isfinite(result->grad_norm);
    result->nonfinite = !finite;
    result->nonfinite_rank = result->nonfinite_micro_step = result->nonfinite_unit = -1;
    if (!finite) find_suspect(engine);
    if (config->plan->policy.parameter_dtype == SHERD_FP16)
        result->nonfinite =
            shd_loss_scale_learn(&config->loss_scale, !finite, &engine->next_progress.loss_scale) != SHERD_OK;
    if (result->nonfinite && !config->skips_nonfinite) return fail_nonfinite(engine);
    result->skipped = !finite || (config->judge && config->judge(config->judge_user, result));
    engine->skips = result->skipped;
    engine->next_progress.update_count += !result->skipped;
    engine->gradient_scale = shd_clip_scale(config->clip, result->grad_norm) / result->loss_scale;
    return SHERD_OK;
}

/* --- the exchange ------------------------------------------------------------------------------------------------- */

static void merge_metrics(shd_engine *engine) {
    for (int32_t m = 0; m < SHERD_METRICS; m++) {
        shd_exact_sum all = engine->verdicts[0].metrics[m];
        for (int32_t r = 1; r < engine->config.plan->policy.world_size; r++)
            shd_exact_sum_merge(&all, &engine->verdicts[r].metrics[m]);
        engine->result.metrics[m] = shd_exact_sum_value(&all);
    }
}

static void merge(shd_engine *engine) {
    sherd_step_result *result = &engine->result;
    shd_exact_sum_clear(&engine->loss);
    shd_exact_sum_clear(&engine->square_sum);
    shd_exact_sum_clear(&engine->parameter_square_sum);
    for (int32_t r = 0; r < engine->config.plan->policy.world_size; r++) {
        const shd_verdict *verdict = &engine->verdicts[r];
        shd_exact_sum_merge(&engine->loss, &verdict->loss);
        shd_exact_sum_merge(&engine->square_sum, &verdict->square_sum);
        shd_exact_sum_merge(&engine->parameter_square_sum, &verdict->parameter_square_sum);
        result->target_count += verdict->target_count;
        result->flags |= verdict->flags;
        if (verdict->arena_bytes > result->peak_bytes) result->peak_bytes = verdict->arena_bytes;
    }
    merge_metrics(engine);
    double loss = shd_exact_sum_value(&engine->loss);
    result->loss = result->target_count > 0 ? loss / (double)result->target_count : 0;
}

static sherd_status exchange(shd_engine *engine, bool training) {
    double since_ms = shd_clock_ms();
    shd_verdict mine = {.loss = engine->loss,
                        .square_sum = engine->square_sum,
                        .parameter_square_sum = engine->parameter_square_sum,
                        .target_count = engine->local_targets,
                        .arena_bytes = shd_memory_held(engine->device ? SHD_MEMORY_DEVICE : SHD_MEMORY_ARENA),
                        .flags = training ? engine->flags : 0,
                        .save_state = shd_engine_save_state(engine),
                        .loss_suspect = engine->loss_suspect,
                        .gradient_suspect = engine->gradient_suspect,
                        .step_ms = find_step_ms(engine, since_ms),
                        .wait_ms = engine->clock.wait_ms};
    memcpy(mine.metrics, engine->metrics, sizeof mine.metrics);
    SHD_TRY(shd_comm_exchange(engine->config.comm, &mine, sizeof mine, engine->verdicts));
    if (!training) return SHERD_OK;
    engine->flags = 0;
    /* Who comes first waits for the last one here, which the next verdict tells. */
    double now_ms = shd_clock_ms();
    engine->clock = (shd_rank_clock){.since_ms = since_ms, .wait_ms = now_ms - since_ms};
    return SHERD_OK;
}

sherd_status shd_engine_verdict(shd_engine *engine) {
    bool training = engine->program->kind == SHD_PROGRAM_TRAIN;
    sherd_step_result *result = &engine->result;
    if (engine->device) SHD_TRY(shd_device_hear(engine));
    SHD_TRY(exchange(engine, training));
    merge(engine);
    result->loss_scale = engine->progress.loss_scale.scale;
    result->grad_norm = sqrt(shd_exact_sum_value(&engine->square_sum)) / result->loss_scale;
    if (!training) return SHERD_OK;
    result->step = engine->step;
    result->lr = shd_engine_lr(engine);
    result->param_norm = sqrt(shd_exact_sum_value(&engine->parameter_square_sum));
    result->rank_step = summarize(engine, false);
    result->rank_wait = summarize(engine, true);
    SHD_TRY(shd_engine_saves_ended(engine, &engine->commits));
    return judge(engine);
}
