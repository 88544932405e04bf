#include "shard/plan.h"
#include "tests/shard/models.h"

#include <criterion/criterion.h>
#include <string.h>

/* Each case spoils a good description; the answer must have the code and name the culprit. */
typedef struct refusal {
    void (*spoil)(model_box *box, shd_policy *policy);
    sherd_status status;
    const char *culprit;
} refusal;

/* One spoiled thing a line. */
/* clang-format off */
#define SPOIL(name, ...) static void name(model_box *box, shd_policy *policy) { (void)box, (void)policy; __VA_ARGS__; }
SPOIL(same_tensor_names, box->tensors[3].name = "wte")
SPOIL(same_unit_names, box->units[2].name = "block")
SPOIL(no_tensor_name, box->tensors[1].name = NULL)
SPOIL(empty_tensor_name, box->tensors[1].name = "")
SPOIL(no_unit_name, box->units[1].name = NULL)
SPOIL(latin1_name, box->tensors[1].name = "gr\xFC\xDF")
SPOIL(overlong_name, box->tensors[1].name = "\xC0\x80")
SPOIL(cut_name, box->tensors[1].name = "a\xE2\x82")
SPOIL(surrogate_name, box->units[1].name = "\xED\xA0\x80")
SPOIL(newline_name, box->units[1].name = "a\nb")
SPOIL(negative_dimension, box->tensors[1].shape[1] = -20)
SPOIL(negative_beside_zero, box->tensors[1].shape[0] = 0; box->tensors[1].shape[1] = -1)
SPOIL(negative_dim_count, box->tensors[1].dim_count = -1)
SPOIL(too_many_dims, box->tensors[1].dim_count = SHERD_MAX_DIMS + 1)
SPOIL(product_overflows, box->tensors[1].shape[0] = INT64_C(1) << 40; box->tensors[1].shape[1] = INT64_C(1) << 40)
SPOIL(product_wraps_to_zero, box->tensors[1].shape[0] = INT64_C(1) << 32; box->tensors[1].shape[1] = INT64_C(1) << 32)
SPOIL(too_large, box->tensors[1].shape[0] = INT64_C(1) << 57; box->tensors[1].shape[1] = 1)
SPOIL(sum_too_large, box->tensors[0].shape[0] = INT64_C(3) << 54; box->tensors[0].dim_count = 1;
      box->tensors[1] = box->tensors[0];
      box->tensors[1].name = "block.w")
SPOIL(negative_activations, box->units[1].activation_bytes = -1)
SPOIL(huge_activations, box->units[1].activation_bytes = INT64_MAX)
SPOIL(negative_remade, box->units[1].remade_bytes = -1)
SPOIL(huge_remade, box->units[1].remade_bytes = INT64_MAX)
SPOIL(negative_scratch, box->model.scratch_bytes = -1)
SPOIL(negative_logits, box->model.logits_bytes = -64)
SPOIL(gap, box->units[2].first_tensor = 4; box->units[2].tensor_count = 0; box->units[1].tensor_count = 1)
SPOIL(unordered, box->units[1].first_tensor = 2)
SPOIL(overlapping, box->units[2].first_tensor = 2)
SPOIL(beyond, box->units[2].tensor_count = 2)
SPOIL(negative_tensor_count, box->units[1].tensor_count = -1)
SPOIL(shares_itself, box->shares[2][0] = 2)
SPOIL(shares_higher, box->units[1].shares = box->shares[2]; box->units[1].share_count = 1; box->shares[2][0] = 2)
SPOIL(shares_negative, box->shares[2][0] = -1)
SPOIL(shares_twice, box->units[2].share_count = 2)
SPOIL(shares_null, box->units[2].shares = NULL)
SPOIL(negative_share_count, box->units[2].share_count = -1)
SPOIL(no_units, box->model.unit_count = 0)
SPOIL(null_units, box->model.units = NULL)
SPOIL(null_tensors, box->model.tensors = NULL)
SPOIL(negative_tensors, box->model.tensor_count = -1)
SPOIL(other_size, box->model.size -= 8)
SPOIL(stage_4, policy->stage = 4)
SPOIL(negative_stage, policy->stage = -1)
SPOIL(negative_prefetch, policy->prefetch = -1)
SPOIL(no_such_recompute, policy->recompute = (sherd_recompute)3)
SPOIL(rank_too_high, policy->rank = 2)
SPOIL(negative_rank, policy->rank = -1)
SPOIL(no_ranks, policy->world_size = 0)
SPOIL(too_many_ranks, policy->world_size = SHD_MAX_RANKS + 1)
SPOIL(three_states, policy->state_count = 3)
SPOIL(negative_states, policy->state_count = -1)
SPOIL(no_gradient_slots, policy->gradient_slots = 0)
SPOIL(too_many_gradient_slots, policy->gradient_slots = INT32_MAX)
SPOIL(shared_at_stage_0, policy->stage = 0; policy->gather_shared = true)
SPOIL(shared_by_replicas_of_one, policy->replicas = 2; policy->gather_shared = true)
SPOIL(replicas_of_less_than_one, policy->replicas = 3)
SPOIL(negative_replicas, policy->replicas = -1)
SPOIL(replicas_at_stage_0, policy->replicas = 2; policy->stage = 0)
SPOIL(shared_alone, policy->world_size = 1; policy->gather_shared = true)
/* clang-format on */

static const refusal refusals[] = {
    {same_tensor_names, SHERD_ARGUMENT, "two tensors are called \"wte\""},
    {same_unit_names, SHERD_ARGUMENT, "two units are called \"block\""},
    {no_tensor_name, SHERD_ARGUMENT, "tensor 1"},
    {empty_tensor_name, SHERD_ARGUMENT, "tensor 1"},
    {no_unit_name, SHERD_ARGUMENT, "unit 1"},
    {latin1_name, SHERD_ARGUMENT, "tensor 1"},
    {overlong_name, SHERD_ARGUMENT, "tensor 1"},
    {cut_name, SHERD_ARGUMENT, "tensor 1"},
    {surrogate_name, SHERD_ARGUMENT, "unit 1"},
    {newline_name, SHERD_ARGUMENT, "unit 1"},
    {negative_dimension, SHERD_ARGUMENT, "dimension 1 of tensor \"block.w\" is -20"},
    {negative_beside_zero, SHERD_ARGUMENT, "block.w"},
    {negative_dim_count, SHERD_ARGUMENT, "block.w"},
    {too_many_dims, SHERD_ARGUMENT, "block.w"},
    {product_overflows, SHERD_ARGUMENT, "block.w"},
    {product_wraps_to_zero, SHERD_ARGUMENT, "block.w"},
    {too_large, SHERD_ARGUMENT, "block.w"},
    {sum_too_large, SHERD_ARGUMENT, "block.w"}, /* the second */
    {negative_activations, SHERD_ARGUMENT, "\"block\""},
    {huge_activations, SHERD_ARGUMENT, "\"block\""},
    {negative_remade, SHERD_ARGUMENT, "\"block\" asks for -1 bytes of remade"},
    {huge_remade, SHERD_ARGUMENT, "\"block\""},
    {negative_scratch, SHERD_ARGUMENT, "scratch"},
    {negative_logits, SHERD_ARGUMENT, "logits"},
    {gap, SHERD_ARGUMENT, "tensor \"block.b\" belongs to no unit"},
    {unordered, SHERD_ARGUMENT, "\"block\" begins at tensor 2"},
    {overlapping, SHERD_ARGUMENT, "\"head\" begins at tensor 2"},
    {beyond, SHERD_ARGUMENT, "\"head\" has 2 tensors; 1 are left"},
    {negative_tensor_count, SHERD_ARGUMENT, "\"block\" has -1 tensors"},
    {shares_itself, SHERD_ARGUMENT, "\"head\" (index 2) shares unit 2"},
    {shares_higher, SHERD_ARGUMENT, "\"block\" (index 1) shares unit 2"},
    {shares_negative, SHERD_ARGUMENT, "shares unit -1"},
    {shares_twice, SHERD_ARGUMENT, "\"head\" shares unit \"embedding\" twice"},
    {shares_null, SHERD_ARGUMENT, "\"head\""},
    {negative_share_count, SHERD_ARGUMENT, "\"head\""},
    {no_units, SHERD_ARGUMENT, "0 units"},
    {null_units, SHERD_ARGUMENT, "no list of them"},
    {null_tensors, SHERD_ARGUMENT, "no list of them"},
    {negative_tensors, SHERD_ARGUMENT, "-1 tensors"},
    {other_size, SHERD_ARGUMENT, "sherd_model.size"},
    {stage_4, SHERD_CONFIG, "shard.stage is 4"},
    {negative_stage, SHERD_CONFIG, "shard.stage is -1"},
    {negative_prefetch, SHERD_CONFIG, "shard.prefetch is -1"},
    {no_such_recompute, SHERD_CONFIG, "train.recompute is 3"},
    {rank_too_high, SHERD_CONFIG, "rank is 2"},
    {negative_rank, SHERD_CONFIG, "rank is -1"},
    {no_ranks, SHERD_CONFIG, "world_size is 0"},
    {too_many_ranks, SHERD_CONFIG, "world_size is 65537"},
    {three_states, SHERD_CONFIG, "3 states"},
    {negative_states, SHERD_CONFIG, "-1 states"},
    {no_gradient_slots, SHERD_CONFIG, "gradient_slots is 0"},
    {too_many_gradient_slots, SHERD_CONFIG, "gradient_slots"},
    {shared_at_stage_0, SHERD_CONFIG, "stage 0"},
    {shared_alone, SHERD_CONFIG, "one rank"},
    {shared_by_replicas_of_one, SHERD_CONFIG, "one rank"},
    {replicas_of_less_than_one, SHERD_CONFIG, "shard.replicas is 3, which does not divide the 2 ranks"},
    {negative_replicas, SHERD_CONFIG, "shard.replicas is -1"},
    {replicas_at_stage_0, SHERD_CONFIG, "shard.replicas is 2 at stage 0"},
};

Test(description, that_makes_no_sense_is_refused_and_the_culprit_named) {
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        model_box box;
        box_three_units(&box);
        shd_policy policy = policy_of(2, 3, false, 1);
        refusals[i].spoil(&box, &policy);
        shd_plan *untouched = (shd_plan *)&box, *plan = untouched;
        sherd_status status = shd_plan_create(&box.model, &policy, &plan);
        cr_assert_eq(status, refusals[i].status, "case %zu (\"%s\"): status %d, %s", i, refusals[i].culprit, status,
                     sherd_last_error());
        cr_assert(strstr(sherd_last_error(), refusals[i].culprit), "\"%s\" is not in \"%s\"", refusals[i].culprit,
                  sherd_last_error());
        cr_assert_eq(plan, untouched);
    }
}

Test(description, may_have_an_absent_model_or_policy_only_to_be_refused) {
    model_box box;
    box_three_units(&box);
    shd_policy policy = policy_of(2, 3, false, 1);
    shd_plan *plan;
    cr_assert_eq(shd_plan_create(NULL, &policy, &plan), SHERD_ARGUMENT);
    cr_assert_eq(shd_plan_create(&box.model, NULL, &plan), SHERD_ARGUMENT);
}

Test(description, is_refused_when_its_memory_would_not_fit_64_bits) {
    /* Within the limits of a tensor, but four states in full on every rank and eight times 2^60 of activations. */
    model_box box = {0};
    for (int32_t u = 0; u < 8; u++) {
        snprintf(box.names[u], sizeof *box.names, "n%d", u);
        box.units[u] = (sherd_unit){.name = box.names[u], .activation_bytes = INT64_C(1) << 60};
    }
    box.model = (sherd_model){.size = sizeof box.model, .units = box.units, .unit_count = 8};
    shd_policy policy = policy_of(2, 0, false, 1);
    shd_plan *plan;
    cr_assert_eq(shd_plan_create(&box.model, &policy, &plan), SHERD_ARGUMENT);
    cr_assert(strstr(sherd_last_error(), "2^63"));
}

Test(description, is_copied_whole) {
    model_box box, spoiled;
    box_three_units(&box);
    shd_policy policy = policy_of(2, 3, false, 1);
    char name[] = "wte";
    box.tensors[0].name = name;
    shd_plan *plan;
    cr_assert_eq(shd_plan_create(&box.model, &policy, &plan), SHERD_OK);
    memset(name, 'x', 3);
    memset(&spoiled, 0xA5, sizeof spoiled);
    memcpy(&box, &spoiled, sizeof box);
    cr_assert_str_eq(plan->tensors[0].name, "wte");
    cr_assert_str_eq(plan->tensor_names[2], "block.b");
    cr_assert_str_eq(plan->unit_names[1], "block");
    cr_assert_eq(plan->tensors[1].shape[0], 30);
    cr_assert(plan->units[2].share_count == 1 && plan->units[2].shares[0] == 0);
    cr_assert(plan->units[1].first_tensor == 1 && plan->units[1].tensor_count == 2);
    cr_assert(plan->scratch_bytes == 500 && plan->logits_bytes == 4000);
    shd_plan_destroy(plan);
}

Test(description, may_hold_names_in_any_script) {
    model_box box;
    box_three_units(&box);
    box.tensors[0].name = "größe.重み.𝛼";
    box.units[0].name = "\xEF\xBF\xBD\xF4\x8F\xBF\xBF";
    shd_policy policy = policy_of(2, 3, false, 1);
    shd_plan *plan;
    cr_assert_eq(shd_plan_create(&box.model, &policy, &plan), SHERD_OK, "%s", sherd_last_error());
    shd_plan_destroy(plan);
}
