/* Where things are: arenas, and the addresses of groups, shards and gradients in them. */
#include "runtime/base/memory.h"
#include "runtime/base/spare.h"
#include "runtime/base/status.h"
#include "runtime/engine/internal.h"

#include <assert.h>
#include <string.h>

/* On a device nothing lies where peers read it, and everything is allocated here. */
static sherd_status map_device(shd_engine *engine) {
    const int64_t *bytes = engine->config.plan->arena_bytes;
    const shd_engine_place *place = engine->config.place;
    void *memory;
    for (int p = 0; p < SHD_PLACES; p++) {
        if (bytes[p] == 0) continue;
        SHD_TRY((p == SHD_PLACE_PINNED ? place->ops->allocate_pinned : place->ops->allocate)(place->device, bytes[p],
                                                                                             &memory));
        engine->arenas[p] = memory;
    }
    return SHERD_OK;
}

static void unmap_device(shd_engine *engine) {
    const shd_engine_place *place = engine->config.place;
    for (int p = 0; p < SHD_PLACES; p++)
        if (engine->arenas[p])
            (p == SHD_PLACE_PINNED ? place->ops->release_pinned : place->ops->release)(place->device,
                                                                                       engine->arenas[p]);
}

sherd_status shd_engine_map(shd_engine *engine) {
    const shd_plan *plan = engine->config.plan;
    if (engine->config.place) return map_device(engine);
    int64_t private_bytes = plan->arena_bytes[SHD_PLACE_PRIVATE];
    if (private_bytes > 0) {
        engine->arenas[SHD_PLACE_PRIVATE] = shd_map(private_bytes);
        if (!engine->arenas[SHD_PLACE_PRIVATE])
            return shd_fail(SHERD_MEMORY, "rank %d cannot have the %lld bytes of its plan: %lld are available",
                            plan->policy.rank, (long long)private_bytes, (long long)shd_memory_available());
    }
    engine->arenas[SHD_PLACE_EXPORTED] = shd_comm_exported(engine->config.comm, plan->policy.rank);
    engine->arenas[SHD_PLACE_HOST] = shd_comm_host(engine->config.comm);
    return SHERD_OK;
}

void shd_engine_unmap(shd_engine *engine) {
    if (engine->config.place) {
        unmap_device(engine);
        return;
    }
    shd_unmap(engine->arenas[SHD_PLACE_PRIVATE], engine->config.plan->arena_bytes[SHD_PLACE_PRIVATE]);
}

void *shd_engine_address(const shd_engine *engine, int32_t buffer_index) {
    if (buffer_index < 0) return NULL; /* a group without elements has no memory */
    const shd_buffer *buffer = &engine->config.plan->buffers[buffer_index];
    return engine->arenas[buffer->place] + buffer->offset_bytes;
}

/* Within a slot the trainable group lies first, the frozen one behind it. */
static int64_t offset_in_slot(const shd_plan *plan, int32_t group_index) {
    const shd_group *group = &plan->groups[group_index];
    int32_t trainable = plan->units[group->unit_index].trainable_group;
    if (group->trainable || trainable < 0) return 0;
    return plan->groups[trainable].padded_count * shd_dtype_bytes(plan->policy.parameter_dtype);
}

char *shd_engine_gathered(const shd_engine *engine, int32_t group_index) {
    const shd_plan *plan = engine->config.plan;
    const shd_group *group = &plan->groups[group_index];
    if (group->parameters_buffer >= 0) return shd_engine_address(engine, group->parameters_buffer);
    int32_t slot = engine->units[group->unit_index].gathered_buffer;
    if (slot < 0) return NULL;
    char *start = shd_engine_address(engine, slot);
    return start ? start + offset_in_slot(plan, group_index) : NULL;
}

static int64_t own_offset(const shd_engine *engine, const shd_group *group) {
    return shd_policy_place(&engine->config.plan->policy) * group->shard_count;
}

char *shd_engine_shard(const shd_engine *engine, int32_t group_index) {
    const shd_plan *plan = engine->config.plan;
    const shd_group *group = &plan->groups[group_index];
    if (group->shard_buffer >= 0) return shd_engine_address(engine, group->shard_buffer);
    char *full = shd_engine_address(engine, group->parameters_buffer);
    return full ? full + own_offset(engine, group) * shd_dtype_bytes(plan->policy.parameter_dtype) : NULL;
}

void *shd_engine_copy(const shd_engine *engine, int32_t group_index) {
    const shd_group *group = &engine->config.plan->groups[group_index];
    if (group->master_buffer < 0) return NULL;
    bool in_full = engine->config.plan->policy.stage == 0;
    return in_full ? shd_engine_address(engine, group->parameters_buffer) : shd_engine_shard(engine, group_index);
}

float *shd_engine_accumulator(const shd_engine *engine, int32_t group_index) {
    const shd_group *group = &engine->config.plan->groups[group_index];
    float *start = shd_engine_address(engine, group->accumulator_buffer);
    if (!start) return NULL;
    return engine->config.plan->policy.stage == 0 ? start + own_offset(engine, group) : start;
}

shd_held shd_engine_held(const shd_engine *engine, int32_t group_index, int32_t state_index, int32_t shard_of) {
    const shd_plan *plan = engine->config.plan;
    const shd_group *group = &plan->groups[group_index];
    bool in_full = plan->policy.stage == 0; /* then values start with the group, else with the own shard */
    int32_t own = shd_policy_place(&plan->policy);
    assert(in_full || shard_of < 0 || shard_of == own);
    int32_t place = shard_of < 0 ? own : shard_of;
    shd_held held = {.first = place * group->shard_count, .count = group->shard_count};
    if (in_full && shard_of < 0) held = (shd_held){.first = 0, .count = group->padded_count};
    int32_t apart = state_index >= 0 ? group->state_buffers[state_index] : group->master_buffer;
    bool is_apart = state_index >= 0 || apart >= 0;
    char *start = is_apart  ? shd_engine_address(engine, apart)
                  : in_full ? shd_engine_address(engine, group->parameters_buffer)
                            : shd_engine_shard(engine, group_index);
    held.dtype = state_index >= 0 ? plan->policy.state_dtype : is_apart ? SHERD_FP32 : plan->policy.parameter_dtype;
    held.values = start && in_full ? start + shd_span_bytes(held.dtype, held.first) : start;
    held.buffer_index = is_apart                        ? apart
                        : group->parameters_buffer >= 0 ? group->parameters_buffer
                                                        : group->shard_buffer;
    return held;
}

float *shd_engine_owned_state(const shd_engine *engine, int32_t tensor, int32_t index) {
    const shd_tensor_place *place = &engine->config.plan->places[tensor];
    if (place->state_counts[index] == 0) return NULL;
    float *start = shd_engine_address(engine, engine->config.plan->owned_state_buffer);
    return start + place->state_offsets[index];
}

float *shd_engine_gradient(const shd_engine *engine, int32_t group_index) {
    int32_t unit_index = engine->config.plan->groups[group_index].unit_index;
    return shd_engine_address(engine, engine->units[unit_index].gradient_buffer);
}

static void clear(const shd_engine *engine, float *from, int64_t count) {
    if (count == 0) return;
    size_t bytes = (size_t)count * sizeof *from;
    if (engine->device)
        engine->config.place->ops->clear(engine->config.place->streams[SHD_QUEUE_COMPUTE], from, (int64_t)bytes);
    else
        memset(from, 0, bytes);
}

void shd_engine_clear_gaps(const shd_engine *engine, int32_t unit_index) {
    const shd_plan *plan = engine->config.plan;
    const shd_unit_plan *unit = &plan->units[unit_index];
    if (unit->trainable_group < 0) return;
    float *gradient = shd_engine_gradient(engine, unit->trainable_group);
    if (!gradient) return;
    int64_t end = 0;
    for (int whole = 0; whole <= 1; whole++) /* whole tensors lie behind the others */
        for (int32_t t = unit->first_tensor; t < unit->first_tensor + unit->tensor_count; t++) {
            const shd_tensor_place *place = &plan->places[t];
            if (place->group_index != unit->trainable_group || place->whole != whole) continue;
            clear(engine, gradient + end, place->offset_count - end);
            end = place->offset_count + place->element_count;
        }
    clear(engine, gradient + end, plan->groups[unit->trainable_group].padded_count - end);
}

/* --- views -------------------------------------------------------------------------------------------------------- */

/* Lends the tensors of one unit: its parameters, and with `gradients` where their gradients go. */
static void lend_unit(shd_engine *engine, int32_t unit_index, bool gradients) {
    const shd_plan *plan = engine->config.plan;
    const shd_unit_plan *unit = &plan->units[unit_index];
    for (int32_t t = unit->first_tensor; t < unit->first_tensor + unit->tensor_count; t++) {
        const shd_tensor_place *place = &plan->places[t];
        const char *full = shd_engine_gathered(engine, place->group_index);
        engine->parameters[t] =
            full ? full + place->offset_count * shd_dtype_bytes(plan->policy.parameter_dtype) : NULL;
        if (!gradients || !plan->groups[place->group_index].trainable) continue;
        float *gradient = shd_engine_gradient(engine, place->group_index);
        engine->gradients[t] = gradient ? gradient + place->offset_count : NULL;
    }
}

void shd_engine_lend(shd_engine *engine, const shd_instruction *instruction) {
    const shd_plan *plan = engine->config.plan;
    const shd_unit_plan *unit = &plan->units[instruction->unit_index];
    bool backward = instruction->op == SHD_OP_BACKWARD;
    memset(engine->parameters, 0, (size_t)plan->tensor_count * sizeof *engine->parameters);
    memset(engine->gradients, 0, (size_t)plan->tensor_count * sizeof *engine->gradients);
    lend_unit(engine, instruction->unit_index, backward);
    for (int32_t i = 0; i < unit->share_count; i++) lend_unit(engine, unit->shares[i], backward);
}
