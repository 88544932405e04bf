/* The model's description, taken in: what could be wrong with it is refused here, so that later parts need not ask.
 *
 * Afterwards all element counts add up to at most MAX_COUNT, far enough below 2^63 that padding and bytes of any single
 * group fit. */
#include "shard/parts.h"

#include "runtime/base/arith.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const int64_t MAX_COUNT = INT64_C(1) << 56;
static const int64_t MAX_WORK_BYTES = INT64_C(1) << 60;

/* Bytes of the UTF-8 sequence at `text`, 0 when there is none (RFC 3629: shortest form, no surrogates). */
static int utf8_length(const unsigned char *text) {
    if (text[0] < 0x80) return 1;
    int length = text[0] >= 0xF0 ? 4 : text[0] >= 0xE0 ? 3 : 2;
    if (text[0] < 0xC2 || text[0] > 0xF4) return 0;
    for (int i = 1; i < length; i++)
        if ((text[i] & 0xC0) != 0x80) return 0;
    bool overlong = (text[0] == 0xE0 && text[1] < 0xA0) || (text[0] == 0xF0 && text[1] < 0x90);
    bool beyond = (text[0] == 0xED && text[1] >= 0xA0) || (text[0] == 0xF4 && text[1] >= 0x90);
    return overlong || beyond ? 0 : length;
}

static sherd_status check_name(const char *noun, int32_t index, const char *name) {
    if (!name || !*name) return shd_fail(SHERD_ARGUMENT, "%s %" PRId32 " has no name", noun, index);
    for (const unsigned char *at = (const unsigned char *)name; *at;) {
        int length = utf8_length(at);
        if (!length) return shd_fail(SHERD_ARGUMENT, "the name of %s %" PRId32 " is not UTF-8", noun, index);
        if (*at < 0x20 || *at == 0x7F)
            return shd_fail(SHERD_ARGUMENT, "the name of %s %" PRId32 " holds a control character", noun, index);
        at += length;
    }
    return SHERD_OK;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorts `names` and refuses two that are the same. */
static sherd_status check_unique(const char *noun, const char **names, int32_t count) {
    qsort(names, (size_t)count, sizeof *names, compare_names);
    for (int32_t i = 1; i < count; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            return shd_fail(SHERD_ARGUMENT, "two %ss are called \"%s\"", noun, names[i]);
    return SHERD_OK;
}

/* Elements of a tensor whose dimensions are not negative; false when they overflow. A zero outweighs all others. */
static bool element_count(const sherd_tensor *tensor, int64_t *out) {
    int64_t count = 1;
    for (int32_t i = 0; i < tensor->dim_count; i++)
        if (tensor->shape[i] == 0) return *out = 0, true;
    for (int32_t i = 0; i < tensor->dim_count; i++)
        if (!shd_mul_checked(count, tensor->shape[i], &count)) return false;
    *out = count;
    return true;
}

/* Adds the tensor's elements, alignment included, to *total. */
static sherd_status check_tensor(const sherd_tensor *tensor, int64_t *total) {
    if (tensor->dim_count < 0 || tensor->dim_count > SHERD_MAX_DIMS)
        return shd_fail(SHERD_ARGUMENT, "tensor \"%s\" has %" PRId32 " dimensions; 0 to %d are possible", tensor->name,
                        tensor->dim_count, SHERD_MAX_DIMS);
    for (int32_t i = 0; i < tensor->dim_count; i++)
        if (tensor->shape[i] < 0)
            return shd_fail(SHERD_ARGUMENT,
                            "dimension %" PRId32 " of tensor \"%s\" is %" PRId64 "; it must not be negative", i,
                            tensor->name, tensor->shape[i]);
    int64_t count;
    if (!element_count(tensor, &count) || count > MAX_COUNT)
        return shd_fail(SHERD_ARGUMENT, "tensor \"%s\" has more than 2^56 elements", tensor->name);
    *total += shd_round_up(count, SHD_ALIGN_COUNT);
    if (*total > MAX_COUNT)
        return shd_fail(SHERD_ARGUMENT, "with tensor \"%s\" the model has more than 2^56 elements", tensor->name);
    return SHERD_OK;
}

static sherd_status check_tensors(const sherd_model *model, const char **names) {
    int64_t total = 0;
    for (int32_t i = 0; i < model->tensor_count; i++) {
        SHD_TRY(check_name("tensor", i, model->tensors[i].name));
        SHD_TRY(check_tensor(&model->tensors[i], &total));
        names[i] = model->tensors[i].name;
    }
    return check_unique("tensor", names, model->tensor_count);
}

/* marks[v]: 1 + the last unit seen to share v. */
static sherd_status check_shares(const sherd_model *model, int32_t index, int32_t *marks) {
    const sherd_unit *unit = &model->units[index];
    if (unit->share_count < 0 || (unit->share_count > 0 && !unit->shares))
        return shd_fail(SHERD_ARGUMENT, "unit \"%s\" has %" PRId32 " shares and %s list of them", unit->name,
                        unit->share_count, unit->shares ? "a" : "no");
    for (int32_t i = 0; i < unit->share_count; i++) {
        int32_t shared = unit->shares[i];
        if (shared < 0 || shared >= index)
            return shd_fail(SHERD_ARGUMENT,
                            "unit \"%s\" (index %" PRId32 ") shares unit %" PRId32 "; only lower units can be shared",
                            unit->name, index, shared);
        if (marks[shared] == index + 1)
            return shd_fail(SHERD_ARGUMENT, "unit \"%s\" shares unit \"%s\" twice", unit->name,
                            model->units[shared].name);
        marks[shared] = index + 1;
    }
    return SHERD_OK;
}

static sherd_status check_units(const sherd_model *model, const char **names, int32_t *marks) {
    int32_t next_tensor = 0;
    for (int32_t i = 0; i < model->unit_count; i++) {
        const sherd_unit *unit = &model->units[i];
        SHD_TRY(check_name("unit", i, unit->name));
        names[i] = unit->name;
        if (unit->tensor_count < 0 || unit->tensor_count > model->tensor_count - next_tensor)
            return shd_fail(SHERD_ARGUMENT, "unit \"%s\" has %" PRId32 " tensors; %" PRId32 " are left for it",
                            unit->name, unit->tensor_count, model->tensor_count - next_tensor);
        if (unit->first_tensor != next_tensor && unit->tensor_count > 0)
            return shd_fail(SHERD_ARGUMENT,
                            "unit \"%s\" begins at tensor %" PRId32
                            "; the unit before it ends so that it must begin at %" PRId32,
                            unit->name, unit->first_tensor, next_tensor);
        next_tensor += unit->tensor_count;
        if (unit->output_bytes < 0 || unit->output_bytes > MAX_WORK_BYTES)
            return shd_fail(SHERD_ARGUMENT, "unit \"%s\" asks for %" PRId64 " bytes of output", unit->name,
                            unit->output_bytes);
        if (unit->activation_bytes < 0 || unit->activation_bytes > MAX_WORK_BYTES)
            return shd_fail(SHERD_ARGUMENT, "unit \"%s\" asks for %" PRId64 " bytes of activations", unit->name,
                            unit->activation_bytes);
        if (unit->remade_bytes < 0 || unit->remade_bytes > MAX_WORK_BYTES)
            return shd_fail(SHERD_ARGUMENT, "unit \"%s\" asks for %" PRId64 " bytes of remade activations", unit->name,
                            unit->remade_bytes);
        SHD_TRY(check_shares(model, i, marks));
    }
    if (next_tensor != model->tensor_count)
        return shd_fail(SHERD_ARGUMENT, "tensor \"%s\" belongs to no unit", model->tensors[next_tensor].name);
    return check_unique("unit", names, model->unit_count);
}

sherd_status shd_model_check(const sherd_model *model) {
    if (!model) return shd_fail(SHERD_ARGUMENT, "no model is described");
    if (model->size != sizeof *model)
        return shd_fail(SHERD_ARGUMENT, "sherd_model.size is %zu; sizeof(sherd_model) is %zu", model->size,
                        sizeof *model);
    if (model->unit_count < 1 || model->unit_count > SHD_MAX_UNITS || !model->units)
        return shd_fail(SHERD_ARGUMENT, "the model has %" PRId32 " units%s; 1 to %d are possible", model->unit_count,
                        model->units ? "" : " and no list of them", SHD_MAX_UNITS);
    if (model->tensor_count < 0 || (model->tensor_count > 0 && !model->tensors))
        return shd_fail(SHERD_ARGUMENT, "the model has %" PRId32 " tensors%s", model->tensor_count,
                        model->tensors ? "" : " and no list of them");
    if (model->scratch_bytes < 0 || model->scratch_bytes > MAX_WORK_BYTES)
        return shd_fail(SHERD_ARGUMENT, "the model asks for %" PRId64 " bytes of scratch memory", model->scratch_bytes);
    if (model->logits_bytes < 0 || model->logits_bytes > MAX_WORK_BYTES)
        return shd_fail(SHERD_ARGUMENT, "the model asks for %" PRId64 " bytes of logits", model->logits_bytes);

    const char **names = shd_alloc((size_t)shd_max(model->tensor_count, model->unit_count), sizeof *names);
    int32_t *marks = shd_alloc((size_t)model->unit_count, sizeof *marks);
    sherd_status status = names && marks ? SHERD_OK : shd_fail(SHERD_MEMORY, "no memory to check the model's names");
    if (status == SHERD_OK) status = check_tensors(model, names);
    if (status == SHERD_OK) status = check_units(model, names, marks);
    shd_free(names);
    shd_free(marks);
    return status;
}

sherd_status shd_policy_check(const shd_policy *policy) {
    if (!policy) return shd_fail(SHERD_ARGUMENT, "no policy is given");
    if (policy->world_size < 1 || policy->world_size > SHD_MAX_RANKS)
        return shd_fail(SHERD_CONFIG, "world_size is %" PRId32 "; it must be 1 to %d", policy->world_size,
                        SHD_MAX_RANKS);
    if (policy->rank < 0 || policy->rank >= policy->world_size)
        return shd_fail(SHERD_CONFIG, "rank is %" PRId32 "; with %" PRId32 " ranks it must be 0 to %" PRId32,
                        policy->rank, policy->world_size, policy->world_size - 1);
    if (policy->replicas < 0 || policy->world_size % shd_policy_mesh(policy).replicas)
        return shd_fail(SHERD_CONFIG, "shard.replicas is %" PRId32 ", which does not divide the %" PRId32 " ranks",
                        policy->replicas, policy->world_size);
    if (policy->replicas > 1 && policy->stage == 0)
        return shd_fail(SHERD_CONFIG, "shard.replicas is %" PRId32 " at stage 0, where every rank is a replica",
                        policy->replicas);
    if (policy->stage < 0 || policy->stage > 3)
        return shd_fail(SHERD_CONFIG, "shard.stage is %" PRId32 "; it must be 0, 1, 2 or 3", policy->stage);
    if (policy->prefetch < 0)
        return shd_fail(SHERD_CONFIG, "shard.prefetch is %" PRId32 "; it must not be negative", policy->prefetch);
    if (policy->recompute < SHERD_RECOMPUTE_NONE || policy->recompute > SHERD_RECOMPUTE_PART)
        return shd_fail(SHERD_CONFIG, "train.recompute is %d; there is no such choice", (int)policy->recompute);
    if (policy->on_device && policy->gather_shared)
        return shd_fail(SHERD_CONFIG, "gather (shard.gather) is shared, but devices share no memory; use auto or copy");
    if (policy->gather_shared && policy->stage == 0)
        return shd_fail(SHERD_CONFIG, "shard.gather is shared at stage 0, where every rank has parameters of its own");
    if (policy->gather_shared && shd_policy_split(policy) == 1)
        return shd_fail(SHERD_CONFIG, "shard.gather is shared with one rank, where there is nothing to gather");
    if (policy->state_count < 0 || policy->state_count > SHD_MAX_STATES)
        return shd_fail(SHERD_CONFIG, "the optimizer has %" PRId32 " states an element; 0 to %d are possible",
                        policy->state_count, SHD_MAX_STATES);
    if (policy->parameter_dtype != SHERD_FP32 && policy->parameter_dtype != SHERD_BF16 &&
        policy->parameter_dtype != SHERD_FP16)
        return shd_fail(SHERD_CONFIG, "train.precision has the unknown value %d; it must be fp32, bf16 or fp16",
                        (int)policy->parameter_dtype);
    if (policy->reduce_dtype != SHERD_FP32 && policy->reduce_dtype != SHERD_BF16)
        return shd_fail(SHERD_CONFIG, "shard.reduce_dtype is %s; it must be fp32 or bf16",
                        shd_dtype_text(policy->reduce_dtype));
    if (policy->state_dtype != SHERD_FP32 && policy->state_dtype != SHERD_INT8)
        return shd_fail(SHERD_CONFIG, "optimizer.state_dtype is %s; it must be fp32 or int8",
                        shd_dtype_text(policy->state_dtype));
    if (policy->staging_bytes < 0)
        return shd_fail(SHERD_CONFIG, "staging_bytes is %" PRId64 "; it must not be negative", policy->staging_bytes);
    if (policy->gradient_slots < 1 || policy->gradient_slots > SHD_MAX_GRADIENT_SLOTS)
        return shd_fail(SHERD_CONFIG, "gradient_slots is %" PRId32 "; it must be 1 to %d", policy->gradient_slots,
                        SHD_MAX_GRADIENT_SLOTS);
    return SHERD_OK;
}

/* The arrays whose sizes the description gives. */
static bool allocate(shd_plan *plan, int64_t share_count) {
    size_t units = (size_t)plan->unit_count, tensors = (size_t)plan->tensor_count;
    plan->unit_names = shd_alloc(units, sizeof *plan->unit_names);
    plan->tensor_names = shd_alloc(tensors, sizeof *plan->tensor_names);
    plan->tensors = shd_alloc(tensors, sizeof *plan->tensors);
    plan->places = shd_alloc(tensors, sizeof *plan->places);
    plan->units = shd_alloc(units, sizeof *plan->units);
    plan->shares = shd_alloc((size_t)share_count, sizeof *plan->shares);
    return plan->unit_names && plan->tensor_names && plan->tensors && plan->places && plan->units && plan->shares;
}

static bool recomputes(sherd_recompute recompute, const sherd_unit *unit) {
    return (recompute == SHERD_RECOMPUTE_UNIT && unit->activation_bytes > 0) ||
           (recompute != SHERD_RECOMPUTE_NONE && unit->remade_bytes > 0);
}

sherd_status shd_plan_describe(shd_plan *plan, const sherd_model *model) {
    int64_t share_count = 0;
    for (int32_t u = 0; u < model->unit_count; u++) share_count += model->units[u].share_count;
    plan->unit_count = model->unit_count;
    plan->tensor_count = model->tensor_count;
    if (!allocate(plan, share_count)) return shd_fail(SHERD_MEMORY, "no memory for the plan's description");

    int32_t *shares = plan->shares;
    for (int32_t u = 0; u < model->unit_count; u++) {
        const sherd_unit *unit = &model->units[u];
        plan->unit_names[u] = shd_strdup(unit->name);
        if (!plan->unit_names[u]) return shd_fail(SHERD_MEMORY, "no memory for the name of unit \"%s\"", unit->name);
        if (unit->share_count > 0) memcpy(shares, unit->shares, (size_t)unit->share_count * sizeof *shares);
        plan->units[u] =
            (shd_unit_plan){.trainable_group = -1,
                            .frozen_group = -1,
                            .first_tensor = u ? plan->units[u - 1].first_tensor + plan->units[u - 1].tensor_count : 0,
                            .tensor_count = unit->tensor_count,
                            .shares = shares,
                            .share_count = unit->share_count,
                            .output_buffer = -1,
                            .activation_buffer = -1,
                            .remade_buffer = -1,
                            /* The last unit's backward follows its forward: nothing would be saved. */
                            .recomputed = u < model->unit_count - 1 && recomputes(plan->policy.recompute, unit),
                            .output_bytes = unit->output_bytes,
                            .activation_bytes = unit->activation_bytes,
                            .remade_bytes = unit->remade_bytes};
        shares += unit->share_count;
    }
    for (int32_t t = 0; t < model->tensor_count; t++) {
        const sherd_tensor *tensor = &model->tensors[t];
        plan->tensor_names[t] = shd_strdup(tensor->name);
        if (!plan->tensor_names[t])
            return shd_fail(SHERD_MEMORY, "no memory for the name of tensor \"%s\"", tensor->name);
        plan->tensors[t] = *tensor;
        plan->tensors[t].name = plan->tensor_names[t];
        for (int32_t i = tensor->dim_count; i < SHERD_MAX_DIMS; i++) plan->tensors[t].shape[i] = 0;
        (void)element_count(tensor, &plan->places[t].element_count);
    }
    return SHERD_OK;
}
