#include "shard/plan.h"
#include "tests/shard/models.h"

#include "runtime/base/memory.h"

#include <criterion/criterion.h>
#include <stdlib.h>

static shd_plan *plan_of(const model_box *box, shd_policy policy) {
    shd_plan *plan = NULL;
    cr_assert_eq(shd_plan_create(&box->model, &policy, &plan), SHERD_OK, "%s", sherd_last_error());
    return plan;
}

static const int32_t world_sizes[] = {1, 2, 3, 4, 6, 8};

/* Calls `check` for random models under every world size, stage and gather mode, with prefetch 0 to 4 in turn. */
static void for_all(int seeds, void (*check)(const model_box *, const shd_plan *)) {
    model_box box;
    for (int seed = 1; seed <= seeds; seed++) {
        box_random(&box, (uint64_t)seed);
        for (size_t w = 0; w < sizeof world_sizes / sizeof *world_sizes; w++)
            for (int32_t stage = 0; stage <= 3; stage++)
                for (int shared = 0; shared <= (stage > 0 && world_sizes[w] > 1); shared++) {
                    shd_policy policy = policy_of(world_sizes[w], stage, shared, (seed + stage) % 5);
                    policy.rank = seed % policy.world_size;
                    policy.state_count = seed % 3;
                    policy.state_dtype = seed % 5 < 2 ? SHERD_INT8 : SHERD_FP32;
                    policy.gradient_slots = 1 + seed % 4;
                    policy.parameter_dtype = seed % 3 == 0 ? SHERD_BF16 : SHERD_FP32;
                    policy.reduce_dtype = seed % 4 >= 2 ? SHERD_BF16 : SHERD_FP32;
                    shd_plan *plan = plan_of(&box, policy);
                    check(&box, plan);
                    shd_plan_destroy(plan);
                }
    }
}

static int64_t elements_of(const sherd_tensor *tensor) {
    int64_t count = 1;
    for (int32_t i = 0; i < tensor->dim_count; i++) count *= tensor->shape[i];
    return count;
}

/* --- layout ------------------------------------------------------------------------------------------------------- */

static void check_layout(const model_box *box, const shd_plan *plan) {
    int32_t n = plan->policy.world_size;
    int64_t parameter_count = 0, trainable_count = 0;
    for (int32_t t = 0; t < plan->tensor_count; t++) {
        const shd_tensor_place *place = &plan->places[t];
        const shd_group *group = &plan->groups[place->group_index];
        const shd_unit_plan *unit = &plan->units[place->unit_index];
        int64_t count = elements_of(&box->tensors[t]);
        cr_assert_eq(place->element_count, count);
        cr_assert_eq(place->offset_count % (plan->policy.state_dtype == SHERD_INT8 && group->trainable ? 256 : 16), 0);
        cr_assert(place->offset_count + count <= group->used_count);
        cr_assert_eq(group->trainable, !box->tensors[t].frozen);
        cr_assert_eq(group->unit_index, place->unit_index);
        cr_assert_eq(place->group_index, group->trainable ? unit->trainable_group : unit->frozen_group);
        cr_assert(t >= box->units[place->unit_index].first_tensor &&
                  t < box->units[place->unit_index].first_tensor + box->units[place->unit_index].tensor_count);
        parameter_count += count;
        if (group->trainable) trainable_count += count;

        /* Every element in exactly one shard, in order. */
        int64_t covered = 0;
        for (int32_t r = 0; r < n; r++) {
            int64_t first, part;
            if (!shd_plan_intersect(plan, t, r * group->shard_count, group->shard_count, &first, &part)) continue;
            cr_assert_eq(first, covered);
            cr_assert_gt(part, 0);
            cr_assert(place->offset_count + first >= r * group->shard_count);
            cr_assert(place->offset_count + first + part <= (r + 1) * group->shard_count);
            covered += part;
        }
        cr_assert_eq(covered, count);

        /* Tensors of a group do not overlap. */
        for (int32_t s = 0; s < t; s++) {
            const shd_tensor_place *other = &plan->places[s];
            if (other->group_index == place->group_index)
                cr_assert(other->offset_count + other->element_count <= place->offset_count);
        }
    }
    cr_assert_eq(plan->parameter_count, parameter_count);
    cr_assert_eq(plan->trainable_count, trainable_count);
    for (int32_t g = 0; g < plan->group_count; g++) {
        const shd_group *group = &plan->groups[g];
        cr_assert_eq(group->shard_count % SHD_BLOCK_COUNT, 0);
        cr_assert_eq(group->padded_count, n * group->shard_count);
        cr_assert(group->padded_count >= group->used_count);
        cr_assert(group->padded_count - group->used_count < (int64_t)n * SHD_BLOCK_COUNT);
    }
}

Test(plan, puts_every_element_of_every_tensor_into_exactly_one_shard) { for_all(60, check_layout); }

Test(plan, lays_tensors_alike_for_every_number_of_ranks_and_every_stage) {
    model_box box;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        box_random(&box, seed);
        shd_plan *one = plan_of(&box, policy_of(1, 0, false, 0));
        for (size_t w = 0; w < sizeof world_sizes / sizeof *world_sizes; w++)
            for (int32_t stage = 0; stage <= 3; stage++) {
                shd_plan *plan = plan_of(&box, policy_of(world_sizes[w], stage, false, 1));
                for (int32_t t = 0; t < plan->tensor_count; t++) {
                    cr_assert_eq(plan->places[t].group_index, one->places[t].group_index);
                    cr_assert_eq(plan->places[t].offset_count, one->places[t].offset_count);
                }
                for (int32_t g = 0; g < plan->group_count; g++)
                    cr_assert_eq(plan->groups[g].used_count, one->groups[g].used_count);
                shd_plan_destroy(plan);
            }
        shd_plan_destroy(one);
    }
}

Test(plan, pads_the_last_shard_when_counts_do_not_divide) {
    model_box box = {.tensors = {{.name = "w", .dim_count = 2, .shape = {17, 257}}},
                     .units = {{.name = "u", .tensor_count = 1}}};
    box.model = (sherd_model){
        .size = sizeof box.model, .units = box.units, .unit_count = 1, .tensors = box.tensors, .tensor_count = 1};
    /* 4369 elements are 18 blocks. */
    static const int64_t blocks_a_shard[] = {18, 9, 6, 5, 3, 3};
    for (size_t w = 0; w < sizeof world_sizes / sizeof *world_sizes; w++) {
        shd_plan *plan = plan_of(&box, policy_of(world_sizes[w], 3, false, 1));
        cr_assert_eq(plan->groups[0].used_count, 4369);
        cr_assert_eq(plan->groups[0].shard_count, blocks_a_shard[w] * 256);
        shd_plan_destroy(plan);
    }
}

Test(plan, gives_a_scalar_a_block_on_the_first_rank_and_nothing_to_the_others) {
    model_box box = {.tensors = {{.name = "scale", .dim_count = 0}}, .units = {{.name = "u", .tensor_count = 1}}};
    box.model = (sherd_model){
        .size = sizeof box.model, .units = box.units, .unit_count = 1, .tensors = box.tensors, .tensor_count = 1};
    shd_plan *plan = plan_of(&box, policy_of(8, 3, false, 1));
    int64_t first, count;
    cr_assert(shd_plan_intersect(plan, 0, 0, 256, &first, &count));
    cr_assert(first == 0 && count == 1);
    for (int32_t r = 1; r < 8; r++) cr_assert_not(shd_plan_intersect(plan, 0, r * 256, 256, &first, &count));
    cr_assert_eq(plan->groups[0].padded_count, 8 * 256);
    shd_plan_destroy(plan);
}

Test(plan, keeps_no_memory_for_tensors_without_elements_and_none_of_training_for_frozen_ones) {
    model_box box = {.tensors = {{.name = "empty", .dim_count = 2, .shape = {INT64_MAX, 0}},
                                 {.name = "frozen", .dim_count = 1, .shape = {300}, .frozen = true}},
                     .units = {{.name = "a", .tensor_count = 1}, {.name = "b", .first_tensor = 1, .tensor_count = 1}}};
    box.model = (sherd_model){
        .size = sizeof box.model, .units = box.units, .unit_count = 2, .tensors = box.tensors, .tensor_count = 2};
    for (int32_t stage = 0; stage <= 3; stage++) {
        shd_plan *plan = plan_of(&box, policy_of(2, stage, false, 1));
        cr_assert_eq(plan->group_count, 2);
        cr_assert_eq(plan->groups[0].padded_count, 0);
        cr_assert_eq(plan->groups[0].parameters_buffer, -1);
        cr_assert_eq(plan->groups[0].accumulator_buffer, -1);
        cr_assert_eq(plan->groups[0].state_buffers[0], -1);
        cr_assert_eq(plan->groups[1].accumulator_buffer, -1);
        cr_assert_eq(plan->groups[1].state_buffers[1], -1);
        cr_assert_eq(plan->gradient_count, 0);
        cr_assert_eq(plan->partials_buffer, -1);
        cr_assert_eq(plan->category_bytes[SHD_CATEGORY_GRADIENTS], 0);
        cr_assert_eq(plan->category_bytes[SHD_CATEGORY_OPTIMIZER], 0);
        /* 300 elements are 2 blocks, 1 a rank; "a" is never gathered, "b" once, forward and backward together. */
        cr_assert_eq(plan->gather_count, stage == 3 ? 1 : 0);
        cr_assert_eq(plan->category_bytes[SHD_CATEGORY_PARAMETERS], stage == 3 ? 0 : 2048);
        cr_assert_eq(plan->category_bytes[SHD_CATEGORY_MASTER], stage == 3 ? 1024 : 0);
        cr_assert_eq(plan->category_bytes[SHD_CATEGORY_GATHER_BUFFERS], stage == 3 ? 2048 : 0);
        shd_plan_destroy(plan);
    }
}

/* --- buffers ------------------------------------------------------------------------------------------------------ */

/* What one group needs, by the table in the header of shard/plan.h and nothing else: buffers of a kind, their bytes. */
static void expect_buffer(const shd_plan *plan, int32_t index, bool wanted, shd_buffer_kind kind, int32_t owner,
                          int64_t bytes) {
    if (!wanted || bytes == 0) {
        cr_assert_eq(index, -1);
        return;
    }
    cr_assert(index >= 0 && index < plan->buffer_count);
    const shd_buffer *buffer = &plan->buffers[index];
    cr_assert_eq(buffer->kind, kind);
    cr_assert_eq(buffer->owner_index, owner);
    cr_assert_eq(buffer->bytes, bytes);
}

static void check_groups(const shd_plan *plan) {
    const shd_policy *policy = &plan->policy;
    bool copies = policy->stage == 3 && policy->world_size > 1 && !policy->gather_shared;
    for (int32_t g = 0; g < plan->group_count; g++) {
        const shd_group *group = &plan->groups[g];
        int64_t own = 4 * (policy->stage == 0 ? group->padded_count : group->shard_count);
        bool half = policy->parameter_dtype != SHERD_FP32;
        int64_t width = half ? 2 : 4;
        expect_buffer(plan, group->parameters_buffer, !copies, SHD_BUFFER_PARAMETERS, g, width * group->padded_count);
        expect_buffer(plan, group->shard_buffer, copies, SHD_BUFFER_SHARD, g, width * group->shard_count);
        expect_buffer(plan, group->master_buffer, half && group->trainable, SHD_BUFFER_MASTER, g, own);
        expect_buffer(plan, group->accumulator_buffer, group->trainable, SHD_BUFFER_ACCUMULATOR, g, own);
        for (int32_t s = 0; s < SHD_MAX_STATES; s++)
            expect_buffer(plan, group->state_buffers[s], group->trainable && s < policy->state_count, SHD_BUFFER_STATE,
                          g, policy->state_dtype == SHERD_INT8 ? (own / 4 / 256 * 260 + 63) / 64 * 64 : own);
    }
}

static void check_buffers(const model_box *box, const shd_plan *plan) {
    int64_t categories[SHD_CATEGORIES] = {0}, ends[SHD_PLACES] = {0}, sum = 0;
    check_groups(plan);
    for (int32_t b = 0; b < plan->buffer_count; b++) {
        const shd_buffer *buffer = &plan->buffers[b];
        cr_assert_gt(buffer->bytes, 0);
        cr_assert_eq(buffer->bytes % 64, 0);
        cr_assert_eq(buffer->offset_bytes % 64, 0);
        cr_assert_eq(buffer->transient, buffer->kind == SHD_BUFFER_GATHER_SLOT ||
                                            buffer->kind == SHD_BUFFER_GRADIENT_SLOT ||
                                            buffer->kind == SHD_BUFFER_ROUNDED_SLOT);
        cr_assert_eq(buffer->charged_bytes,
                     buffer->place == SHD_PLACE_HOST ? buffer->bytes / plan->policy.world_size : buffer->bytes);
        if (plan->policy.world_size == 1) cr_assert_eq(buffer->place, SHD_PLACE_PRIVATE);
        for (int32_t c = 0; c < b; c++) {
            const shd_buffer *other = &plan->buffers[c];
            cr_assert(other->place != buffer->place || other->offset_bytes + other->bytes <= buffer->offset_bytes ||
                      buffer->offset_bytes + buffer->bytes <= other->offset_bytes);
        }
        categories[buffer->category] += buffer->charged_bytes;
        sum += buffer->charged_bytes;
        if (buffer->offset_bytes + buffer->bytes > ends[buffer->place])
            ends[buffer->place] = buffer->offset_bytes + buffer->bytes;
    }
    for (int c = 0; c < SHD_CATEGORIES; c++) cr_assert_eq(plan->category_bytes[c], categories[c]);
    for (int p = 0; p < SHD_PLACES; p++) cr_assert_eq(plan->arena_bytes[p], ends[p]);
    cr_assert_eq(plan->allocated_bytes, sum);

    int64_t largest_shard = 0;
    for (int32_t g = 0; g < plan->group_count; g++)
        if (plan->groups[g].trainable && plan->groups[g].shard_count > largest_shard)
            largest_shard = plan->groups[g].shard_count;
    cr_assert_eq(plan->partials_buffer < 0, largest_shard == 0);
    if (largest_shard > 0) cr_assert_geq(plan->buffers[plan->partials_buffer].bytes, largest_shard / 256 * 8);
    for (int32_t u = 0; u < plan->unit_count; u++) {
        const shd_unit_plan *unit = &plan->units[u];
        cr_assert_eq(unit->activation_bytes, box->units[u].activation_bytes);
        cr_assert_eq(unit->activation_buffer < 0, unit->activation_bytes == 0);
        if (unit->activation_buffer >= 0)
            cr_assert_eq(plan->buffers[unit->activation_buffer].bytes, (unit->activation_bytes + 63) / 64 * 64);
        cr_assert_eq(unit->remade_bytes, box->units[u].remade_bytes);
        cr_assert_eq(unit->remade_buffer < 0, unit->remade_bytes == 0);
        if (unit->remade_buffer >= 0)
            cr_assert_eq(plan->buffers[unit->remade_buffer].bytes, (unit->remade_bytes + 63) / 64 * 64);
        cr_assert_eq(unit->output_bytes, box->units[u].output_bytes);
        cr_assert_eq(unit->output_buffer < 0, unit->output_bytes == 0);
        if (unit->output_buffer >= 0)
            cr_assert_eq(plan->buffers[unit->output_buffer].bytes, (unit->output_bytes + 63) / 64 * 64);
    }
}

Test(plan, overlaps_no_buffers_and_adds_up_to_what_it_charges) { for_all(40, check_buffers); }

/* Outputs 640, 128, 320, 64, activations 1000, 0, 3000, 200 and remade ones 500, 900, 100, 70 bytes: kept, they take
 * 1024, 0, 3008, 256 and 512, 960, 128, 128, rounded to 64. UNIT: the first three share the 3136 of the third, which
 * is the largest, and the last keeps its own. PART: their remade ones share the 960 of the second. */
Test(plan, gives_recomputed_units_one_memory_for_their_activations) {
    static const sherd_tensor tensors[4] = {{"a", 1, {10}}, {"b", 1, {10}}, {"c", 1, {10}}, {"d", 1, {10}}};
    static const sherd_unit units[4] = {
        {"a", 0, 1, NULL, 0, .output_bytes = 640, .activation_bytes = 1000, .remade_bytes = 500},
        {"b", 1, 1, NULL, 0, .output_bytes = 128, .activation_bytes = 0, .remade_bytes = 900},
        {"c", 2, 1, NULL, 0, .output_bytes = 320, .activation_bytes = 3000, .remade_bytes = 100},
        {"d", 3, 1, NULL, 0, .output_bytes = 64, .activation_bytes = 200, .remade_bytes = 70}};
    const sherd_model model = {
        .size = sizeof model, .units = units, .unit_count = 4, .tensors = tensors, .tensor_count = 4};
    shd_policy policy = {.world_size = 2, .stage = 3, .prefetch = 1, .state_count = 2, .gradient_slots = 3};
    const int64_t shared_bytes[] = {0, 3008 + 128, 960};
    const int64_t own_bytes[] = {1024 + 512 + 960 + 3008 + 128 + 256 + 128, 256 + 128, 1024 + 3008 + 256 + 128};
    for (sherd_recompute recompute = SHERD_RECOMPUTE_NONE; recompute <= SHERD_RECOMPUTE_PART; recompute++) {
        policy.recompute = recompute;
        shd_plan *plan;
        cr_assert_eq(shd_plan_create(&model, &policy, &plan), SHERD_OK);
        cr_assert_eq(plan->category_bytes[SHD_CATEGORY_ACTIVATIONS],
                     640 + 128 + 320 + 64 + shared_bytes[recompute] + own_bytes[recompute]);
        const shd_unit_plan *a = &plan->units[0], *b = &plan->units[1], *c = &plan->units[2], *d = &plan->units[3];
        cr_assert_eq(a->activation_buffer == c->activation_buffer, recompute == SHERD_RECOMPUTE_UNIT);
        cr_assert_eq(a->remade_buffer == b->remade_buffer, recompute != SHERD_RECOMPUTE_NONE);
        cr_assert_eq(a->remade_buffer == c->remade_buffer, recompute != SHERD_RECOMPUTE_NONE);
        cr_assert_eq(a->remade_buffer == a->activation_buffer, recompute == SHERD_RECOMPUTE_UNIT);
        cr_assert_eq(a->remade_first_byte, recompute == SHERD_RECOMPUTE_UNIT ? 1024 : 0);
        cr_assert_eq(c->remade_first_byte, recompute == SHERD_RECOMPUTE_UNIT ? 3008 : 0);
        cr_assert_eq(b->activation_buffer, -1);
        cr_assert(d->activation_buffer != c->activation_buffer && d->remade_buffer != c->remade_buffer);
        for (int32_t u = 0; u < 4; u++)
            cr_assert_eq(plan->units[u].recomputed, recompute != SHERD_RECOMPUTE_NONE && u < 3);
        shd_plan_destroy(plan);
    }
}

Test(plan, differs_between_ranks_in_nothing_but_the_rank) {
    model_box box;
    box_three_units(&box);
    for (int32_t stage = 0; stage <= 3; stage++) {
        shd_policy policy = policy_of(8, stage, stage > 1, 2);
        shd_plan *first = plan_of(&box, policy);
        policy.rank = 7;
        shd_plan *last = plan_of(&box, policy);
        cr_assert_eq(shd_plan_hash(first), shd_plan_hash(last));
        cr_assert_eq(first->buffer_count, last->buffer_count);
        for (int32_t b = 0; b < first->buffer_count; b++) {
            cr_assert_eq(first->buffers[b].offset_bytes, last->buffers[b].offset_bytes);
            cr_assert_eq(first->buffers[b].bytes, last->buffers[b].bytes);
        }
        shd_plan_destroy(first);
        shd_plan_destroy(last);
    }
}

/* One change to the description or the policy, each of which ranks must notice. */
static void change(int which, model_box *box, shd_policy *policy) {
    switch (which) {
    case 0: break;
    case 1: policy->world_size = 4; break;
    case 2: policy->stage = 2; break;
    case 3: policy->gather_shared = true; break;
    case 4: policy->prefetch = 2; break;
    case 5: policy->state_count = 1; break;
    case 6: policy->gradient_slots = 2; break;
    case 7: box->tensors[0].name = "wpe"; break;
    case 8: box->tensors[0].shape[0] = 100, box->tensors[0].shape[1] = 10; break;
    case 9: box->tensors[0].dim_count = 3, box->tensors[0].shape[2] = 1; break;
    case 10: box->tensors[0].frozen = true; break;
    case 11: box->units[1].name = "layer"; break;
    case 12: box->units[2].share_count = 0; break;
    case 13: box->shares[2][0] = 1; break;
    case 14: box->units[0].activation_bytes = 99; break;
    case 15: box->model.scratch_bytes = 499; break;
    case 16: box->model.logits_bytes = 3999; break;
    case 17: box->tensors[3].shape[0] = 8; break;
    case 18: box->units[1].tensor_count = 1, box->units[2].first_tensor = 2, box->units[2].tensor_count = 2; break;
    case 19: policy->gradient_slots = 4; break; /* changes no buffer, only a promise */
    case 20: box->units[0].remade_bytes = 99; break;
    case 21: policy->recompute = SHERD_RECOMPUTE_UNIT; break;
    case 22: policy->recompute = SHERD_RECOMPUTE_PART; break; /* no buffer either: nothing is remade in this model */
    default: cr_assert_fail("no such change");
    }
}

Test(plan, hashes_everything_that_ranks_must_agree_on) {
    enum { CHANGES = 23 };
    uint64_t hashes[CHANGES];
    for (int i = 0; i < CHANGES; i++) {
        model_box box;
        box_three_units(&box);
        shd_policy policy = policy_of(2, 3, false, 1);
        change(i, &box, &policy);
        shd_plan *plan = plan_of(&box, policy);
        hashes[i] = shd_plan_hash(plan);
        shd_plan_destroy(plan);
        for (int j = 0; j < i; j++) cr_assert_neq(hashes[i], hashes[j], "changes %d and %d", i, j);
    }
}

Test(plan, gives_all_its_memory_back) {
    model_box box;
    int64_t before = shd_memory_held(SHD_MEMORY_OBJECTS);
    for (uint64_t seed = 1; seed < 30; seed++) {
        box_random(&box, seed);
        shd_plan *plan = plan_of(&box, policy_of(3, 3, false, 2));
        cr_assert_gt(shd_memory_held(SHD_MEMORY_OBJECTS), before);
        shd_plan_destroy(plan);
        cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), before);
    }
    shd_plan_destroy(NULL);
}

Test(plan, every_category_and_buffer_kind_has_a_text_of_its_own) {
    for (int i = 0; i <= SHD_CATEGORIES; i++)
        for (int j = 0; j < i; j++)
            cr_assert_str_neq(shd_category_text((shd_category)i), shd_category_text((shd_category)j));
    for (int i = 0; i <= SHD_BUFFER_KINDS; i++)
        for (int j = 0; j < i; j++)
            cr_assert_str_neq(shd_buffer_kind_text((shd_buffer_kind)i), shd_buffer_kind_text((shd_buffer_kind)j));
}
