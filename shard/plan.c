/* The plan, from a description and a policy to its last byte; what it is stands in plan.h. */
#include "shard/plan.h"

#include "runtime/base/arith.h"
#include "runtime/base/hash.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "shard/parts.h"

const char *shd_category_text(shd_category category) {
    static const char *const texts[] = {
#define TEXT(name, text) [SHD_CATEGORY_##name] = text,
        SHD_CATEGORY_MAP(TEXT)
#undef TEXT
    };
    return category >= 0 && category < SHD_CATEGORIES ? texts[category] : "unknown";
}

const char *shd_buffer_kind_text(shd_buffer_kind kind) {
    static const char *const texts[] = {
        [SHD_BUFFER_PARAMETERS] = "parameters",
        [SHD_BUFFER_SHARD] = "shard",
        [SHD_BUFFER_GATHER_SLOT] = "gather_slot",
        [SHD_BUFFER_GRADIENT_SLOT] = "gradient_slot",
        [SHD_BUFFER_MASTER] = "master",
        [SHD_BUFFER_ROUNDED_SLOT] = "rounded_slot",
        [SHD_BUFFER_ACCUMULATOR] = "accumulator",
        [SHD_BUFFER_STATE] = "state",
        [SHD_BUFFER_OUTPUT] = "output",
        [SHD_BUFFER_ACTIVATIONS] = "activations",
        [SHD_BUFFER_REMADE] = "remade",
        [SHD_BUFFER_RECOMPUTED] = "recomputed",
        [SHD_BUFFER_OWNED_STATE] = "owned_state",
        [SHD_BUFFER_OWNER_WORK] = "owner_work",
        [SHD_BUFFER_SCRATCH] = "scratch",
        [SHD_BUFFER_LOGITS] = "logits",
        [SHD_BUFFER_PARTIALS] = "partials",
        [SHD_BUFFER_STAGING] = "staging",
        [SHD_BUFFER_RECEIVED] = "received",
        [SHD_BUFFER_MIRROR] = "mirror",
        [SHD_BUFFER_SUMS] = "sums",
        [SHD_BUFFER_TOLD] = "told",
    };
    return kind >= 0 && kind < SHD_BUFFER_KINDS ? texts[kind] : "unknown";
}

int64_t shd_stated_count(const shd_plan *plan, const shd_group *group) {
    return plan->policy.stage == 0 ? group->stated_count : shd_min(group->stated_count, group->shard_count);
}

static int64_t count_model_states(const shd_plan *plan) {
    int32_t stage = plan->policy.stage;
    int64_t value_bytes = shd_dtype_bytes(plan->policy.parameter_dtype), bytes = 0;
    bool mixed = plan->policy.parameter_dtype != SHERD_FP32;
    for (int32_t g = 0; g < plan->group_count; g++) {
        const shd_group *group = &plan->groups[g];
        bytes += value_bytes * (stage < 3 ? group->padded_count : group->shard_count);
        if (!group->trainable) continue;
        bytes += value_bytes * (stage < 2 ? group->padded_count : group->shard_count);
        bytes += mixed ? SHD_FLOAT_BYTES * (stage < 1 ? group->padded_count : group->shard_count) : 0;
        bytes += plan->policy.state_count * shd_span_bytes(plan->policy.state_dtype, shd_stated_count(plan, group));
    }
    return bytes + SHD_FLOAT_BYTES * plan->owned_count;
}

static sherd_status fill(shd_plan *plan, const sherd_model *model) {
    SHD_TRY(shd_plan_describe(plan, model));
    SHD_TRY(shd_plan_owners(plan, plan->policy.demands));
    plan->policy.demands = NULL;
    SHD_TRY(shd_plan_layout(plan));
    SHD_TRY(shd_plan_residencies(plan));
    SHD_TRY(shd_plan_buffers(plan));
    plan->model_state_bytes = count_model_states(plan);
    return SHERD_OK;
}

sherd_status shd_plan_create(const sherd_model *model, const shd_policy *policy, shd_plan **out) {
    SHD_TRY(shd_policy_check(policy));
    SHD_TRY(shd_model_check(model));
    shd_plan *plan = shd_alloc(1, sizeof *plan);
    if (!plan) return shd_fail(SHERD_MEMORY, "no memory for a plan");
    *plan = (shd_plan){.policy = *policy,
                       .scratch_buffer = -1,
                       .logits_buffer = -1,
                       .partials_buffer = -1,
                       .staging_buffer = -1,
                       .received_buffer = -1,
                       .sums_buffer = -1,
                       .told_buffer = -1,
                       .owned_state_buffer = -1,
                       .owner_work_buffer = -1,
                       .scratch_bytes = model->scratch_bytes,
                       .logits_bytes = model->logits_bytes};
    plan->policy.replicas = shd_policy_mesh(policy).replicas;
    sherd_status status = fill(plan, model);
    if (status == SHERD_OK)
        *out = plan;
    else
        shd_plan_destroy(plan);
    return status;
}

static void free_names(char **names, int32_t count) {
    for (int32_t i = 0; names && i < count; i++) shd_free(names[i]);
    shd_free(names);
}

void shd_plan_destroy(shd_plan *plan) {
    if (!plan) return;
    free_names(plan->unit_names, plan->unit_count);
    free_names(plan->tensor_names, plan->tensor_count);
    shd_free(plan->tensors);
    shd_free(plan->units);
    shd_free(plan->groups);
    shd_free(plan->places);
    shd_free(plan->buffers);
    shd_free(plan->shares);
    shd_free(plan->gathers);
    shd_free(plan->gradients);
    shd_free(plan->rounded);
    shd_free(plan);
}

bool shd_plan_intersect(const shd_plan *plan, int32_t tensor, int64_t first, int64_t count, int64_t *tensor_first,
                        int64_t *tensor_count) {
    const shd_tensor_place *place = &plan->places[tensor];
    int64_t begin = shd_max(first, place->offset_count);
    int64_t end = shd_min(first + count, place->offset_count + place->element_count);
    if (begin >= end) return false;
    *tensor_first = begin - place->offset_count;
    *tensor_count = end - begin;
    return true;
}

static uint64_t hash_tensors(const shd_plan *plan, uint64_t hash) {
    for (int32_t t = 0; t < plan->tensor_count; t++) {
        const sherd_tensor *tensor = &plan->tensors[t];
        const shd_tensor_place *place = &plan->places[t];
        hash = shd_hash_text(hash, tensor->name);
        hash = SHD_HASH(hash, tensor->dim_count, tensor->frozen, place->unit_index, place->group_index,
                        place->offset_count, place->element_count, place->owner);
        hash = shd_hash_bytes(hash, tensor->shape, sizeof tensor->shape);
        if (!place->whole) continue;
        hash = shd_hash_bytes(hash, place->state_counts, sizeof place->state_counts);
        hash = shd_hash_bytes(hash, place->state_offsets, sizeof place->state_offsets);
    }
    return hash;
}

static uint64_t hash_description(const shd_plan *plan, uint64_t hash) {
    for (int32_t u = 0; u < plan->unit_count; u++) {
        const shd_unit_plan *unit = &plan->units[u];
        hash = shd_hash_text(hash, plan->unit_names[u]);
        hash = SHD_HASH(hash, unit->trainable_group, unit->frozen_group, unit->first_tensor, unit->tensor_count,
                        unit->share_count, unit->output_buffer, unit->activation_buffer, unit->remade_buffer,
                        unit->remade_first_byte, unit->recomputed, unit->output_bytes, unit->activation_bytes,
                        unit->remade_bytes, unit->gathered_bytes, unit->gradient_bytes);
        for (int32_t i = 0; i < unit->share_count; i++) hash = SHD_HASH(hash, unit->shares[i]);
    }
    return hash_tensors(plan, hash);
}

static uint64_t hash_residencies(uint64_t hash, const shd_residency *residencies, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        hash = SHD_HASH(hash, residencies[i].unit_index, residencies[i].slot_buffer, residencies[i].issue_event,
                        residencies[i].first_event, residencies[i].last_event);
    return hash;
}

uint64_t shd_plan_hash(const shd_plan *plan) {
    const shd_policy *policy = &plan->policy;
    uint64_t hash =
        SHD_HASH(0, policy->world_size, policy->replicas, policy->stage, policy->gather_shared, policy->prefetch,
                 policy->state_count, policy->state_dtype, policy->gradient_slots, policy->recompute,
                 policy->parameter_dtype, policy->reduce_dtype, policy->async_saves, plan->unit_count,
                 plan->tensor_count, plan->group_count, plan->buffer_count, plan->gather_count, plan->gradient_count,
                 plan->scratch_buffer, plan->scratch_bytes, plan->logits_buffer, plan->logits_bytes,
                 plan->partials_buffer, plan->owned_state_buffer, plan->owner_work_buffer, plan->staging_buffer);
    hash = hash_description(plan, hash);
    for (int32_t g = 0; g < plan->group_count; g++) {
        const shd_group *group = &plan->groups[g];
        hash = SHD_HASH(hash, group->unit_index, group->trainable, group->used_count, group->stated_count,
                        group->shard_count, group->part_count, group->padded_count, group->parameters_buffer,
                        group->shard_buffer, group->master_buffer, group->accumulator_buffer);
        for (int32_t s = 0; s < SHD_MAX_STATES; s++) hash = SHD_HASH(hash, group->state_buffers[s]);
    }
    for (int32_t b = 0; b < plan->buffer_count; b++) {
        const shd_buffer *buffer = &plan->buffers[b];
        hash = SHD_HASH(hash, buffer->kind, buffer->category, buffer->place, buffer->dtype, buffer->owner_index,
                        buffer->state_index, buffer->offset_bytes, buffer->bytes, buffer->charged_bytes,
                        buffer->transient);
    }
    if (policy->on_device) hash = SHD_HASH(hash, policy->on_device, plan->received_buffer, plan->sums_buffer);
    hash = hash_residencies(hash, plan->gathers, plan->gather_count);
    hash = hash_residencies(hash, plan->gradients, plan->gradient_count);
    return plan->rounded ? hash_residencies(hash, plan->rounded, plan->gradient_count) : hash;
}
