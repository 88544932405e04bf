/* See slices.h. */
#include "runtime/session/slices.h"

#include "runtime/base/memory.h"
#include "runtime/base/status.h"

typedef struct lister {
    const shd_plan *plan;
    const char *state;
    shd_slice_list *list;
} lister;

/* Makes room for one more. */
static sherd_status reserve(shd_slice_list *list) {
    if (list->count < list->capacity) return SHERD_OK;
    int64_t capacity = list->capacity ? 2 * list->capacity : 64;
    shd_checkpoint_slice *slices = shd_realloc(list->slices, (size_t)capacity * sizeof *slices);
    if (slices) list->slices = slices;
    int32_t *tensors = shd_realloc(list->tensors, (size_t)capacity * sizeof *tensors);
    if (tensors) list->tensors = tensors;
    if (!slices || !tensors)
        return shd_fail(SHERD_MEMORY, "no memory for the list of %lld checkpoint slices", (long long)capacity);
    list->capacity = capacity;
    return SHERD_OK;
}

static sherd_status append(void *user, const shd_slice *slice) {
    const lister *l = user;
    SHD_TRY(reserve(l->list));
    l->list->tensors[l->list->count] = slice->tensor;
    l->list->slices[l->list->count++] = (shd_checkpoint_slice){.tensor = l->plan->tensor_names[slice->tensor],
                                                               .state = l->state,
                                                               .first = slice->first,
                                                               .count = slice->count,
                                                               .values = slice->values,
                                                               .dtype = slice->dtype};
    return SHERD_OK;
}

/* Of shards in `shard_of`, as shd_engine_visit has it. */
static sherd_status list_slices(sherd_session *session, int32_t shard_of, shd_slice_list *out) {
    const sherd_optimizer *optimizer = &session->options.optimizer;
    const shd_policy *policy = &session->plan->policy;
    shd_slice_list list = {0};
    lister l = {.plan = session->plan, .list = &list};
    sherd_status status = SHERD_OK;
    for (int32_t s = -1; s < policy->state_count && status == SHERD_OK; s++) {
        l.state = s < 0 ? SHD_CHECKPOINT_PARAMETER : shd_optimizer_states_name(optimizer, s);
        status = shd_engine_visit(session->engine, s, shard_of, append, &l);
    }
    for (int32_t s = 0; s < shd_whole_state_count(optimizer) && status == SHERD_OK; s++) {
        l.state = shd_whole_state_name(optimizer, s);
        status = shd_engine_visit_owned(session->engine, s, shd_policy_place(policy), append, &l);
    }
    if (status == SHERD_OK)
        *out = list;
    else
        shd_slices_fini(&list);
    return status;
}

/* The slices of unit after unit; those of one keep their order. */
static sherd_status group_by_unit(const shd_plan *plan, shd_slice_list *list, int64_t *unit_ends) {
    shd_slice_list grouped = {.slices = shd_alloc((size_t)list->count, sizeof *grouped.slices),
                              .tensors = shd_alloc((size_t)list->count, sizeof *grouped.tensors),
                              .capacity = list->count};
    if (!grouped.slices || !grouped.tensors) {
        shd_slices_fini(&grouped);
        return shd_fail(SHERD_MEMORY, "no memory for the list of %lld checkpoint slices", (long long)list->count);
    }
    for (int32_t u = 0; u < plan->unit_count; u++) {
        for (int64_t i = 0; i < list->count; i++) {
            if (plan->places[list->tensors[i]].unit_index != u) continue;
            grouped.slices[grouped.count] = list->slices[i];
            grouped.tensors[grouped.count++] = list->tensors[i];
        }
        unit_ends[u] = grouped.count;
    }
    shd_slices_fini(list);
    *list = grouped;
    return SHERD_OK;
}

sherd_status shd_slices_stored(sherd_session *session, shd_slice_list *out, int64_t *unit_ends) {
    shd_slice_list list;
    SHD_TRY(list_slices(session, shd_policy_place(&session->plan->policy), &list));
    sherd_status status = group_by_unit(session->plan, &list, unit_ends);
    if (status == SHERD_OK)
        *out = list;
    else
        shd_slices_fini(&list);
    return status;
}

sherd_status shd_slices_held(sherd_session *session, shd_slice_list *out) { return list_slices(session, -1, out); }

void shd_slices_fini(shd_slice_list *list) {
    shd_free(list->slices);
    shd_free(list->tensors);
    *list = (shd_slice_list){0};
}

const char *shd_optimizer_name(const sherd_optimizer *optimizer) {
    switch (optimizer->kind) {
    case SHERD_ADAMW: return "adamw";
    case SHERD_SGD: return "sgd";
    case SHERD_LION: return "lion";
    case SHERD_ADAM: return "adam";
    case SHERD_ADAFACTOR: return "adafactor";
    case SHERD_MUON: return "muon";
    }
    return "";
}

int32_t shd_optimizer_states(const sherd_optimizer *optimizer) {
    return shd_optimizer_state_count(optimizer) + shd_whole_state_count(optimizer);
}

const char *shd_optimizer_states_name(const sherd_optimizer *optimizer, int32_t index) {
    int32_t elementwise = shd_optimizer_state_count(optimizer);
    return index < elementwise ? shd_optimizer_state_name(optimizer, index)
                               : shd_whole_state_name(optimizer, index - elementwise);
}

int64_t shd_state_values(const shd_plan *plan, int32_t tensor, int32_t index) {
    const shd_tensor_place *place = &plan->places[tensor];
    int32_t owned = index - plan->policy.state_count;
    if (owned >= 0) return place->whole ? place->state_counts[owned] : 0;
    return place->whole || plan->tensors[tensor].frozen ? 0 : place->element_count;
}
