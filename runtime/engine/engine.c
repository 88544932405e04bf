/* An engine's life, and what it lends and tells. */
#include "runtime/base/arith.h"
#include "runtime/base/clock.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/engine/on_device.h"
#include "runtime/ops/ops.h"

#include <math.h>

static int32_t longest_program(const shd_engine_config *config) {
    int32_t longest = 1;
    for (int32_t kind = 0; kind < SHD_PROGRAM_KINDS; kind++)
        if (config->programs[kind] && config->programs[kind]->instruction_count > longest)
            longest = config->programs[kind]->instruction_count;
    return longest;
}

/* Split over one rank, and at stage 0, nothing is ever gathered: parameters are there from the start. */
static bool starts_gathered(const shd_plan *plan) {
    return shd_policy_split(&plan->policy) == 1 || plan->policy.stage == 0;
}

static void init_units(shd_engine *engine) {
    const shd_plan *plan = engine->config.plan;
    for (int32_t u = 0; u < plan->unit_count; u++)
        engine->units[u] = (shd_unit){.state = starts_gathered(plan) ? SHD_UNIT_GATHERED : SHD_UNIT_SHARDED,
                                      .gathered_buffer = -1,
                                      .gradient_buffer = -1,
                                      .exchanged_buffer = -1};
    for (int32_t i = 0; i < plan->gradient_count; i++) {
        shd_unit *unit = &engine->units[plan->gradients[i].unit_index];
        unit->gradient_buffer = plan->gradients[i].slot_buffer;
        unit->exchanged_buffer = shd_exchanged_gradient(plan, i)->slot_buffer;
    }
}

/* For readers of records, who have no plan. */
static void name_all(shd_engine *engine) {
    engine->recorder = shd_comm_recorder(engine->config.comm);
    for (int32_t op = 0; op < SHD_OPS; op++)
        shd_recorder_name_kind(engine->recorder, SHD_RECORD_INSTRUCTION + op, shd_op_text((shd_op)op));
    shd_recorder_name_units(engine->recorder, engine->config.plan->unit_names, engine->config.plan->unit_count);
}

/* What codes of states stand for, where states are kept so. */
static sherd_status make_codebooks(shd_engine *engine) {
    const shd_policy *policy = &engine->config.plan->policy;
    if (policy->state_dtype != SHERD_INT8) return SHERD_OK;
    engine->codebooks = shd_alloc((size_t)policy->state_count, sizeof *engine->codebooks);
    if (!engine->codebooks) return shd_fail(SHERD_MEMORY, "no memory for the codes of optimizer states");
    for (int32_t s = 0; s < policy->state_count; s++)
        shd_codebook_init(&engine->codebooks[s], shd_optimizer_state_is_root(&engine->config.optimizer, s));
    return SHERD_OK;
}

static sherd_status allocate(shd_engine *engine) {
    const shd_plan *plan = engine->config.plan;
    size_t units = (size_t)plan->unit_count, tensors = (size_t)plan->tensor_count,
           ranks = (size_t)plan->policy.world_size;
    int32_t longest = longest_program(&engine->config);
    engine->units = shd_alloc(units, sizeof *engine->units);
    engine->counter_base = shd_alloc(SHD_COUNTERS * units, sizeof *engine->counter_base);
    engine->done = shd_alloc((size_t)longest, sizeof *engine->done);
    engine->records = shd_alloc((size_t)longest, sizeof *engine->records);
    engine->parameters = shd_alloc(tensors, sizeof *engine->parameters);
    engine->gradients = shd_alloc(tensors, sizeof *engine->gradients);
    engine->outputs = shd_alloc(units, sizeof *engine->outputs);
    engine->activations = shd_alloc(units, sizeof *engine->activations);
    engine->remade = shd_alloc(units, sizeof *engine->remade);
    engine->verdicts = shd_alloc(ranks, sizeof *engine->verdicts);
    engine->counts = shd_alloc(ranks, sizeof *engine->counts);
    if (!engine->units || !engine->counter_base || !engine->done || !engine->records || !engine->parameters ||
        !engine->gradients || !engine->outputs || !engine->activations || !engine->remade || !engine->verdicts ||
        !engine->counts)
        return shd_fail(SHERD_MEMORY, "no memory for the engine's tables");
    for (int32_t q = SHD_QUEUE_COMPUTE + 1; q < SHD_QUEUES; q++) SHD_TRY(shd_queue_create(longest, &engine->queues[q]));
    return SHERD_OK;
}

static sherd_status init(shd_engine *engine) {
    const shd_plan *plan = engine->config.plan;
    SHD_TRY(allocate(engine));
    SHD_TRY(make_codebooks(engine));
    if (engine->config.place) SHD_TRY(shd_device_begin(engine, longest_program(&engine->config)));
    SHD_TRY(shd_engine_map(engine));
    if (plan->has_owners && engine->config.optimizer.kind == SHERD_MUON) shd_ops_init_quietly();
    init_units(engine);
    name_all(engine);
    engine->progress = shd_engine_start(engine);
    engine->lr_factor = 1;
    engine->partials = plan->partials_buffer >= 0 ? shd_engine_address(engine, plan->partials_buffer) : NULL;
    for (int32_t u = 0; u < plan->unit_count; u++) {
        const shd_unit_plan *unit = &plan->units[u];
        if (unit->output_buffer >= 0) engine->outputs[u] = shd_engine_address(engine, unit->output_buffer);
        if (unit->activation_buffer >= 0) engine->activations[u] = shd_engine_address(engine, unit->activation_buffer);
        if (unit->remade_buffer >= 0)
            engine->remade[u] = (char *)shd_engine_address(engine, unit->remade_buffer) + unit->remade_first_byte;
    }
    return SHERD_OK;
}

sherd_status shd_engine_create(const shd_engine_config *config, shd_engine **out) {
    shd_engine *engine = shd_alloc(1, sizeof *engine);
    if (!engine) return shd_fail(SHERD_MEMORY, "no memory for an engine");
    engine->config = *config;
    sherd_status status = init(engine);
    if (status == SHERD_OK)
        *out = engine;
    else
        shd_engine_destroy(engine);
    return status;
}

void shd_engine_destroy(shd_engine *engine) {
    if (!engine) return;
    shd_engine_unmap(engine);
    shd_device_end(engine);
    for (int32_t q = 0; q < SHD_QUEUES; q++) shd_queue_destroy(engine->queues[q]);
    shd_free(engine->codebooks);
    shd_free(engine->counts);
    shd_free(engine->verdicts);
    shd_free(engine->remade);
    shd_free(engine->activations);
    shd_free(engine->outputs);
    shd_free(engine->gradients);
    shd_free(engine->parameters);
    shd_free(engine->records);
    shd_free(engine->done);
    shd_free(engine->counter_base);
    shd_free(engine->units);
    shd_free(engine);
}

static bool scales_loss(const shd_engine *engine) { return engine->config.plan->policy.parameter_dtype == SHERD_FP16; }

shd_progress shd_engine_start(const shd_engine *engine) {
    shd_loss_scale none = {.scale = 1};
    return (shd_progress){.loss_scale = scales_loss(engine) ? shd_loss_scale_start(&engine->config.loss_scale) : none};
}

void shd_engine_set_progress(shd_engine *engine, const shd_progress *progress) { engine->progress = *progress; }

void shd_engine_progress(const shd_engine *engine, shd_progress *out) { *out = engine->progress; }

void shd_engine_view(shd_engine *engine, sherd_view *view) {
    const shd_plan *plan = engine->config.plan;
    const shd_instruction *due = &engine->program->instructions[engine->next];
    bool backward = due->op == SHD_OP_BACKWARD;
    shd_engine_lend(engine, due);
    if (backward) shd_engine_clear_gaps(engine, due->unit_index);
    *view = (sherd_view){
        .unit = due->unit_index,
        .micro_step = due->micro_step,
        .again = due->op == SHD_OP_RECOMPUTE,
        .part_again = due->op == SHD_OP_RECOMPUTE && plan->policy.recompute == SHERD_RECOMPUTE_PART,
        .training = engine->program->kind == SHD_PROGRAM_TRAIN,
        .loss_scale = backward && engine->target_count > 0
                          ? (float)engine->progress.loss_scale.scale / (float)engine->target_count
                          : 0.0f,
        .parameters = engine->parameters,
        .gradients = engine->gradients,
        .outputs = engine->outputs,
        .activations = engine->activations,
        .remade = engine->remade,
        .scratch = plan->scratch_buffer >= 0 ? shd_engine_address(engine, plan->scratch_buffer) : NULL,
        .stream = engine->device
                      ? engine->device->place.ops->native_stream(shd_device_stream(engine, SHD_QUEUE_COMPUTE))
                      : NULL,
        .logits = plan->logits_buffer >= 0 ? shd_engine_address(engine, plan->logits_buffer) : NULL,
    };
    engine->compute_since_ns = shd_clock_ns();
    shd_recorder_start(engine->recorder, engine->records[engine->next], engine->compute_since_ns);
}

void shd_engine_add_loss(shd_engine *engine, const double *terms, int64_t count) {
    shd_engine_add_loss_of(engine, terms, count, shd_engine_current_micro_step(engine));
}

void shd_engine_add_loss_of(shd_engine *engine, const double *terms, int64_t count, int32_t micro_step) {
    bool finite = true;
    for (int64_t i = 0; i < count; i++) {
        shd_exact_sum_add(&engine->loss, terms[i]);
        finite = finite && isfinite(terms[i]);
    }
    if (!finite) shd_engine_suspect_loss(engine, micro_step);
}

void shd_engine_add_metric(shd_engine *engine, int32_t metric, const double *terms, int64_t count) {
    for (int64_t i = 0; i < count; i++) shd_exact_sum_add(&engine->metrics[metric], terms[i]);
}

sherd_status shd_engine_await(shd_engine *engine, shd_event *event, const char *what) {
    return shd_device_await(engine, event, what);
}

void shd_engine_raise(shd_engine *engine, uint32_t flags) { engine->flags |= flags; }

void shd_engine_set_targets(shd_engine *engine, int64_t count) { engine->local_targets = count; }

void shd_engine_set_lr_factor(shd_engine *engine, double factor) { engine->lr_factor = factor; }

void *shd_engine_staging(const shd_engine *engine) {
    return shd_engine_address(engine, engine->config.plan->staging_buffer);
}

double shd_engine_save_wait_ms(const shd_engine *engine) { return engine->times.save_ms; }

void shd_engine_result(const shd_engine *engine, sherd_step_result *out) {
    *out = engine->result;
    out->compute_ms = engine->times.compute_ms;
    out->exposed_comm_ms = engine->times.comm_ms;
    out->optimizer_ms = engine->times.optimizer_ms;
    out->save_wait_ms = engine->times.save_ms;
}

sherd_status shd_engine_visit(shd_engine *engine, int32_t state_index, int32_t shard_of,
                              sherd_status (*visit)(void *user, const shd_slice *slice), void *user) {
    const shd_plan *plan = engine->config.plan;
    for (int32_t t = 0; t < plan->tensor_count; t++) {
        const shd_tensor_place *place = &plan->places[t];
        if (state_index >= 0 && (place->whole || !plan->groups[place->group_index].trainable)) continue;
        shd_held held = shd_engine_held(engine, place->group_index, state_index, shard_of);
        shd_slice slice = {.tensor = t, .dtype = held.dtype};
        if (!shd_plan_intersect(plan, t, held.first, held.count, &slice.first, &slice.count)) continue;
        slice.values = held.values + shd_span_bytes(held.dtype, place->offset_count + slice.first - held.first);
        if (engine->device) slice.values = shd_device_mirror(engine, held.buffer_index, slice.values);
        SHD_TRY(visit(user, &slice));
    }
    return SHERD_OK;
}

sherd_status shd_engine_visit_owned(shd_engine *engine, int32_t state_index, int32_t place,
                                    sherd_status (*visit)(void *user, const shd_slice *slice), void *user) {
    const shd_plan *plan = engine->config.plan;
    bool own = place == shd_policy_place(&plan->policy);
    for (int32_t t = 0; t < plan->tensor_count; t++) {
        const shd_tensor_place *tensor = &plan->places[t];
        if (!tensor->whole || tensor->owner != place || tensor->state_counts[state_index] == 0) continue;
        const shd_slice slice = {.tensor = t,
                                 .count = tensor->state_counts[state_index],
                                 .values = own ? shd_engine_owned_state(engine, t, state_index) : NULL,
                                 .dtype = SHERD_FP32};
        SHD_TRY(visit(user, &slice));
    }
    return SHERD_OK;
}
