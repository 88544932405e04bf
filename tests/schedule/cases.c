#include "tests/schedule/cases.h"

#include "shard/plan.h"

#include <stdio.h>
#include <stdlib.h>

static const int32_t shares_first[] = {0};

static const sherd_tensor untied_tensors[] = {
    {.name = "wte", .dim_count = 2, .shape = {257, 17}}, {.name = "wpe", .dim_count = 2, .shape = {32, 17}},
    {.name = "fc", .dim_count = 2, .shape = {17, 68}},   {.name = "bias", .dim_count = 1, .shape = {68}},
    {.name = "out", .dim_count = 2, .shape = {17, 257}},
};
static const sherd_unit untied_units[] = {
    {.name = "embed",
     .first_tensor = 0,
     .tensor_count = 2,
     .output_bytes = 640,
     .activation_bytes = 640,
     .remade_bytes = 200},
    {.name = "block",
     .first_tensor = 2,
     .tensor_count = 2,
     .output_bytes = 1280,
     .activation_bytes = 1280,
     .remade_bytes = 300},
    {.name = "head",
     .first_tensor = 4,
     .tensor_count = 1,
     .output_bytes = 64,
     .activation_bytes = 64,
     .remade_bytes = 10},
};

static const sherd_tensor tied_tensors[] = {
    {.name = "wte", .dim_count = 2, .shape = {257, 17}}, {.name = "wpe", .dim_count = 2, .shape = {32, 17}},
    {.name = "fc", .dim_count = 2, .shape = {17, 68}},   {.name = "bias", .dim_count = 1, .shape = {68}},
    {.name = "norm", .dim_count = 1, .shape = {17}},
};
static const sherd_unit tied_units[] = {
    {.name = "embed",
     .first_tensor = 0,
     .tensor_count = 2,
     .output_bytes = 640,
     .activation_bytes = 640,
     .remade_bytes = 200},
    {.name = "block",
     .first_tensor = 2,
     .tensor_count = 2,
     .output_bytes = 1280,
     .activation_bytes = 1280,
     .remade_bytes = 300},
    {.name = "head", .first_tensor = 4, .tensor_count = 1, .shares = shares_first, .share_count = 1},
};

static const sherd_tensor frozen_tensors[] = {
    {.name = "wte", .dim_count = 2, .shape = {257, 17}},
    {.name = "wpe", .dim_count = 2, .shape = {32, 17}, .frozen = true},
    {.name = "fc", .dim_count = 2, .shape = {17, 68}},
    {.name = "bias", .dim_count = 1, .shape = {68}, .frozen = true},
    {.name = "norm", .dim_count = 1, .shape = {17}},
};

static const sherd_tensor frozen_block_tensors[] = {
    {.name = "wte", .dim_count = 2, .shape = {257, 17}},
    {.name = "wpe", .dim_count = 2, .shape = {32, 17}},
    {.name = "fc", .dim_count = 2, .shape = {17, 68}, .frozen = true},
    {.name = "bias", .dim_count = 1, .shape = {68}, .frozen = true},
    {.name = "norm", .dim_count = 1, .shape = {17}},
};

static const sherd_tensor tiny_tensors[] = {
    {.name = "a", .dim_count = 1, .shape = {3}},
    {.name = "b", .dim_count = 0},
    {.name = "none", .dim_count = 2, .shape = {0, 4}},
    {.name = "c", .dim_count = 1, .shape = {2}, .frozen = true},
};
static const sherd_unit tiny_units[] = {
    {.name = "embed", .first_tensor = 0, .tensor_count = 1},
    {.name = "block", .first_tensor = 1, .tensor_count = 0, .shares = shares_first, .share_count = 1},
    {.name = "head", .first_tensor = 1, .tensor_count = 3},
};

static const sherd_tensor deep_tensors[] = {
    {.name = "wte", .dim_count = 2, .shape = {257, 17}}, {.name = "h0", .dim_count = 1, .shape = {4000}},
    {.name = "h1", .dim_count = 1, .shape = {9000}},     {.name = "h2", .dim_count = 1, .shape = {4000}},
    {.name = "h3", .dim_count = 1, .shape = {9000}},     {.name = "h4", .dim_count = 1, .shape = {4000}},
    {.name = "norm", .dim_count = 1, .shape = {17}},
};
static const sherd_unit deep_units[] = {
    {.name = "embed", .first_tensor = 0, .tensor_count = 1, .output_bytes = 100, .activation_bytes = 100},
    {.name = "h.0", .first_tensor = 1, .tensor_count = 1, .output_bytes = 100, .activation_bytes = 100},
    {.name = "h.1", .first_tensor = 2, .tensor_count = 1, .output_bytes = 200, .activation_bytes = 200},
    {.name = "h.2", .first_tensor = 3, .tensor_count = 1, .output_bytes = 100, .activation_bytes = 100},
    {.name = "h.3", .first_tensor = 4, .tensor_count = 1, .output_bytes = 100, .activation_bytes = 100},
    {.name = "h.4", .first_tensor = 5, .tensor_count = 1, .output_bytes = 100, .activation_bytes = 100},
    {.name = "head", .first_tensor = 6, .tensor_count = 1, .shares = shares_first, .share_count = 1},
};

#define MUON_BLOCK(index)                                                                                              \
    {.name = "ln" index, .dim_count = 1, .shape = {17}}, {.name = "fc" index, .dim_count = 2, .shape = {17, 68}},      \
        {.name = "bias" index, .dim_count = 1, .shape = {68}},                                                         \
        {.name = "proj" index, .dim_count = 2, .shape = {68, 17}}, {                                                   \
        .name = "small" index, .dim_count = 2, .shape = { 5, 5 }                                                       \
    }
static const sherd_tensor muon_tensors[] = {
    {.name = "wte", .dim_count = 2, .shape = {257, 17}},
    MUON_BLOCK("0"),
    MUON_BLOCK("1"),
    MUON_BLOCK("2"),
    MUON_BLOCK("3"),
    {.name = "norm", .dim_count = 1, .shape = {17}},
};
static const sherd_unit muon_units[] = {
    {.name = "embed", .first_tensor = 0, .tensor_count = 1, .output_bytes = 100, .activation_bytes = 100},
    {.name = "h.0", .first_tensor = 1, .tensor_count = 5, .output_bytes = 100, .activation_bytes = 100},
    {.name = "h.1", .first_tensor = 6, .tensor_count = 5, .output_bytes = 200, .activation_bytes = 200},
    {.name = "h.2", .first_tensor = 11, .tensor_count = 5, .output_bytes = 100, .activation_bytes = 100},
    {.name = "h.3", .first_tensor = 16, .tensor_count = 5, .output_bytes = 100, .activation_bytes = 100},
    {.name = "head", .first_tensor = 21, .tensor_count = 1, .shares = shares_first, .share_count = 1},
};

#define COUNT(table) (int32_t)(sizeof(table) / sizeof *(table))
#define MODEL(units_, tensors_, scratch, logits)                                                                       \
    {                                                                                                                  \
        .size = sizeof(sherd_model), .units = units_, .unit_count = COUNT(units_), .tensors = tensors_,                \
        .tensor_count = COUNT(tensors_), .scratch_bytes = scratch, .logits_bytes = logits                              \
    }

static const struct {
    const char *name;
    sherd_model model;
} models[CASE_MODELS] = {
    [CASE_UNTIED] = {"untied", MODEL(untied_units, untied_tensors, 4096, 1000)},
    [CASE_TIED] = {"tied", MODEL(tied_units, tied_tensors, 4096, 0)},
    [CASE_FROZEN] = {"frozen", MODEL(tied_units, frozen_tensors, 0, 1000)},
    [CASE_FROZEN_BLOCK] = {"frozen block", MODEL(tied_units, frozen_block_tensors, 64, 64)},
    [CASE_TINY] = {"tiny", MODEL(tiny_units, tiny_tensors, 0, 0)},
    [CASE_RECOMPUTED] = {"recomputed", MODEL(tied_units, tied_tensors, 4096, 0)},
    [CASE_PART] = {"part recomputed", MODEL(tied_units, tied_tensors, 4096, 0)},
    [CASE_DEEP] = {"deep", MODEL(deep_units, deep_tensors, 4096, 1000)},
    [CASE_MUON] = {"muon", MODEL(muon_units, muon_tensors, 4096, 1000)},
    [CASE_ADAFACTOR] = {"adafactor", MODEL(deep_units, deep_tensors, 4096, 1000)},
};

const char *case_model_name(case_model model) { return models[model].name; }
bool case_is_owned(case_model model) { return model == CASE_MUON || model == CASE_ADAFACTOR; }

static void must(sherd_status status) {
    if (status == SHERD_OK) return;
    fprintf(stderr, "case: %s\n", sherd_last_error());
    abort();
}

/* What needs an owner; as many states as Muon and Adafactor have. */
static void make_demands(case_model model, shd_demand *demands) {
    const sherd_model *described = &models[model].model;
    for (int32_t u = 0; u < described->unit_count; u++)
        for (int32_t i = 0; i < described->units[u].tensor_count; i++) {
            int32_t t = described->units[u].first_tensor + i;
            const sherd_tensor *tensor = &described->tensors[t];
            int64_t rows = tensor->dim_count > 0 ? tensor->shape[0] : 1;
            int64_t columns = tensor->dim_count > 1 ? tensor->shape[1] : 1;
            bool matrix = tensor->dim_count == 2, hidden = u > 0 && u < described->unit_count - 1;
            demands[t] = (shd_demand){.whole = model == CASE_ADAFACTOR || (matrix && hidden), .work_bytes = 100};
            if (model == CASE_MUON)
                demands[t].state_counts[0] = rows * columns;
            else if (matrix)
                demands[t].state_counts[0] = rows, demands[t].state_counts[1] = columns;
            else
                demands[t].state_counts[2] = rows;
        }
}

case_programs case_compile(case_model model, case_policy policy, shd_program_kind kind, int32_t micro_steps,
                           bool clip) {
    case_programs made = {.rank_count = policy.world_size};
    bool owned = case_is_owned(model);
    shd_demand demands[COUNT(muon_tensors)];
    if (owned) make_demands(model, demands);
    for (int32_t r = 0; r < policy.world_size; r++) {
        shd_policy planned = {.rank = r,
                              .world_size = policy.world_size,
                              .replicas = policy.replicas,
                              .stage = policy.stage,
                              .gather_shared = policy.shared,
                              .prefetch = policy.prefetch,
                              .state_count = model == CASE_ADAFACTOR ? 0 : 2,
                              .demands = owned ? demands : NULL,
                              .owners_read_parameters = model == CASE_ADAFACTOR,
                              .recompute = model == CASE_RECOMPUTED ? SHERD_RECOMPUTE_UNIT
                                           : model == CASE_PART     ? SHERD_RECOMPUTE_PART
                                                                    : policy.recompute,
                              .parameter_dtype = policy.parameter_dtype,
                              .reduce_dtype = policy.reduce_dtype,
                              .state_dtype = policy.state_dtype,
                              .async_saves = policy.saves,
                              .staging_bytes = policy.saves ? 8192 : 0,
                              .gradient_slots = policy.gradient_slots};
        must(shd_plan_create(&models[model].model, &planned, &made.plans[r]));
        must(shd_program_compile(made.plans[r], kind, micro_steps, clip, &made.programs[r]));
    }
    return made;
}

void case_destroy(case_programs *programs) {
    for (int32_t r = 0; r < programs->rank_count; r++) {
        shd_program_destroy(programs->programs[r]);
        shd_plan_destroy(programs->plans[r]);
    }
    *programs = (case_programs){0};
}

sherd_status case_verify(const case_programs *programs, int64_t *peak_bytes) {
    return shd_program_verify((const shd_plan *const *)programs->plans, (const shd_program *const *)programs->programs,
                              programs->rank_count, peak_bytes);
}

bool case_next_policy(case_policy *policy) {
    static const struct {
        int32_t ranks, replicas;
    } meshes[] = {{1, 1}, {2, 1}, {2, 2}, {3, 1}, {3, 3}, {4, 1}, {4, 2}, {6, 3}, {8, 1}, {8, 2}, {8, 4}};
    static const int32_t prefetches[] = {0, 1, 3};
    enum { MESHES = COUNT(meshes), PREFETCHES = COUNT(prefetches) };
    int32_t at = 0;
    if (policy->world_size > 0) {
        int32_t m = 0, p = 0;
        while (meshes[m].ranks != policy->world_size || meshes[m].replicas != policy->replicas) m++;
        while (prefetches[p] != policy->prefetch) p++;
        int32_t half = policy->reduce_dtype == SHERD_BF16;
        at = 1 + (((half * MESHES + m) * 4 + policy->stage) * 2 + policy->shared) * PREFETCHES + p;
    }
    for (; at < 2 * MESHES * 4 * 2 * PREFETCHES; at++) {
        int32_t rest = at;
        case_policy next = {.prefetch = prefetches[rest % PREFETCHES]};
        rest /= PREFETCHES;
        next.shared = rest % 2;
        rest /= 2;
        next.stage = rest % 4;
        rest /= 4;
        next.world_size = meshes[rest % MESHES].ranks;
        next.replicas = meshes[rest % MESHES].replicas;
        bool half = rest >= MESHES;
        if (half) next.parameter_dtype = next.reduce_dtype = SHERD_BF16;
        next.gradient_slots = next.world_size == next.replicas ? 1 : 3;
        bool legal = (!next.shared || (next.stage > 0 && next.world_size > next.replicas)) &&
                     (next.replicas == 1 || next.stage > 0);
        bool distinct = next.stage == 3 || next.prefetch == 0;
        bool wanted = next.replicas == 1 ? !half || (next.world_size <= 3 && next.prefetch <= 1)
                                         : next.prefetch <= 1 && (!half || next.world_size == 4);
        if (!legal || !distinct || !wanted) continue;
        *policy = next;
        return true;
    }
    return false;
}
