/* NORM and UPDATE: what a rank does to its own part of a unit, tensor by tensor, so that padding is never touched. */
#include "optim/rounding.h"
#include "runtime/base/arith.h"
#include "runtime/engine/on_device.h"

double shd_engine_lr(const shd_engine *engine) {
    return shd_schedule_lr(&engine->config.optimizer, engine->step) * engine->lr_factor;
}

void shd_engine_norm(shd_engine *engine, const shd_instruction *instruction) {
    int32_t group_index = engine->config.plan->units[instruction->unit_index].trainable_group;
    shd_part own = shd_policy_part(&engine->config.plan->policy, &engine->config.plan->groups[group_index]);
    if (engine->device) {
        shd_device_norm(engine, instruction);
        return;
    }
    if (own.count == 0) return;
    shd_square_sum(engine->config.pool, shd_engine_accumulator(engine, group_index) + own.first, own.count,
                   engine->partials, &engine->square_sum);
    /* Gaps between parameters have been zero since their memory was mapped. */
    const shd_held held = shd_engine_held(engine, group_index, -1, shd_policy_place(&engine->config.plan->policy));
    shd_square_sum(engine->config.pool, (const float *)(const void *)held.values + own.first, own.count,
                   engine->partials, &engine->parameter_square_sum);
}

/* Lends state `state` of the elements from `at` on, counted in all that is held of the group. */
static void add_state(const shd_engine *engine, int32_t group_index, int32_t state, int64_t at, shd_update *update) {
    const shd_held held = shd_engine_held(engine, group_index, state, -1);
    void *start = held.values + shd_span_bytes(held.dtype, at);
    if (held.dtype == SHERD_INT8) {
        update->state_blocks[state] = start;
        update->codebooks[state] = &engine->codebooks[state];
    } else {
        update->states[state] = start;
    }
}

/* The part of a tensor that this rank updates. */
typedef struct own_part {
    int64_t first, count; /* elements of the tensor */
    int64_t at;           /* where they begin in all that is held: parameters, gradient and states */
    float *parameters;    /* [count] */
    void *rounded;        /* their 16-bit copy; NULL: there is none */
    double lr, weight_decay;
} own_part;

static bool find_part(const shd_engine *engine, int32_t tensor, own_part *out) {
    const shd_plan *plan = engine->config.plan;
    const shd_tensor_place *place = &plan->places[tensor];
    const shd_tensor_rule *rule = &engine->config.rules[tensor];
    const shd_held held = shd_engine_held(engine, place->group_index, -1, -1);
    char *copy = shd_engine_copy(engine, place->group_index);
    own_part part = {.lr = shd_engine_lr(engine) * rule->lr_factor, .weight_decay = rule->weight_decay};
    if (!shd_plan_intersect(plan, tensor, held.first, held.count, &part.first, &part.count)) return false;
    part.at = place->offset_count + part.first - held.first;
    part.parameters = (float *)(void *)held.values + part.at;
    part.rounded = copy ? copy + part.at * shd_dtype_bytes(plan->policy.parameter_dtype) : NULL;
    *out = part;
    return true;
}

static void update_elements(shd_engine *engine, int32_t tensor, const own_part *part) {
    const shd_plan *plan = engine->config.plan;
    int32_t group_index = plan->places[tensor].group_index;
    const float *gradients = shd_engine_address(engine, plan->groups[group_index].accumulator_buffer);
    shd_update update = {.parameters = part->parameters,
                         .rounded = part->rounded,
                         .rounded_dtype = plan->policy.parameter_dtype,
                         .gradients = gradients + part->at,
                         .count = part->count,
                         .step = engine->progress.update_count,
                         .lr = part->lr,
                         .weight_decay = part->weight_decay,
                         .gradient_scale = (float)engine->gradient_scale};
    for (int32_t s = 0; s < plan->policy.state_count; s++) add_state(engine, group_index, s, part->at, &update);
    if (engine->device)
        engine->device->place.spans->update(shd_device_stream(engine, SHD_QUEUE_COMPUTE), &engine->config.optimizer,
                                            &update);
    else
        shd_optimizer_update(&engine->config.optimizer, engine->config.pool, &update);
}

/* Takes off what the tensor's owner has worked out. */
static void take_step(shd_engine *engine, int32_t tensor, const own_part *part) {
    const shd_plan *plan = engine->config.plan;
    const shd_tensor_place *place = &plan->places[tensor];
    const float *step = shd_engine_gradient(engine, place->group_index) + place->offset_count + part->first;
    step = shd_comm_peer(engine->config.comm, place->owner, step, part->count * SHD_FLOAT_BYTES);
    shd_whole_take(engine->config.pool, part->parameters, step, part->count, part->lr, part->weight_decay);
    if (part->rounded)
        shd_round_span(engine->config.pool, plan->policy.parameter_dtype, part->count, part->parameters, part->rounded);
}

static void update_tensor(shd_engine *engine, int32_t tensor) {
    own_part part;
    if (!find_part(engine, tensor, &part)) return;
    if (engine->config.plan->places[tensor].whole)
        take_step(engine, tensor, &part);
    else
        update_elements(engine, tensor, &part);
}

void shd_engine_update(shd_engine *engine, const shd_instruction *instruction) {
    const shd_plan *plan = engine->config.plan;
    const shd_unit_plan *unit = &plan->units[instruction->unit_index];
    for (int32_t t = unit->first_tensor; !engine->skips && t < unit->first_tensor + unit->tensor_count; t++)
        if (plan->places[t].group_index == unit->trainable_group) update_tensor(engine, t);
    /* Where parameters are kept in full, the peers' parts are stale until the next gather. */
    bool kept = shd_policy_split(&plan->policy) > 1 && (plan->policy.stage == 1 || plan->policy.stage == 2);
    shd_unit *state = &engine->units[instruction->unit_index];
    if (kept && state->state == SHD_UNIT_GATHERED) shd_unit_move(state, SHD_UNIT_SHARDED);
}
