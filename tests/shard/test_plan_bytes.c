/* What plans cost, against tables worked out by hand and the papers' accounting. */
#include "shard/plan.h"
#include "tests/shard/models.h"

#include "runtime/base/memory.h"

#include <criterion/criterion.h>

static shd_plan *plan_of(const model_box *box, shd_policy policy) {
    shd_plan *plan = NULL;
    cr_assert_eq(shd_plan_create(&box->model, &policy, &plan), SHERD_OK, "%s", sherd_last_error());
    return plan;
}

typedef struct byte_row {
    int32_t world_size, stage;
    bool shared;
    int64_t parameters, master, gradients, optimizer, gather, reduce, allocated, model_state;
} byte_row;

/* The three units' groups, in blocks of 256: embedding 1000 elements = 4 blocks; block 600 = 3, and 20 frozen = 1; head
 * 7 = 1. 1 rank: 4, 3, 1, 1 blocks. 2 ranks: padded to 4, 4, 2, 2 blocks. 8 ranks: to 8, 8, 8, 8. A block is 1024
 * bytes. Gradients hold their memory for events head [3, 5], embedding [3, 7] (the head writes it first), block [4, 6]
 * with 3 slots: three slots. With one rank: head [3, 3], embedding [3, 5], block [4, 4], which takes the head's: two
 * slots. Stage 3 gathers with prefetch 1, [issue, last]: embedding [0, 0], block [0, 1], embedding [1, 3], head [1, 3],
 * block [3, 4], embedding [4, 5]: slots for embedding, block (both groups), head. Norms need 64 bytes (4, 2 and 1
 * doubles), counted in gradients. */
static const byte_row rows[] = {
    {1, 0, false, 9216, 0, 8256, 16384, 0, 7168, 46784, 16 * 2048 + 4 * 256},
    {1, 1, false, 9216, 0, 8256, 16384, 0, 7168, 46784, 16 * 2048 + 4 * 256},
    {1, 2, false, 9216, 0, 8256, 16384, 0, 7168, 46784, 16 * 2048 + 4 * 256},
    {1, 3, false, 9216, 0, 8256, 16384, 0, 7168, 46784, 16 * 2048 + 4 * 256},
    {2, 0, false, 12288, 0, 10304, 20480, 0, 10240, 59072, 43008},
    {2, 1, false, 12288, 0, 5184, 10240, 0, 10240, 43712, 32768},
    {2, 1, true, 6144, 0, 5184, 10240, 0, 10240, 37568, 32768},
    {2, 2, false, 12288, 0, 5184, 10240, 0, 10240, 43712, 27648},
    {2, 2, true, 6144, 0, 5184, 10240, 0, 10240, 37568, 27648},
    {2, 3, false, 0, 6144, 5184, 10240, 12288, 10240, 49856, 21504},
    {2, 3, true, 6144, 0, 5184, 10240, 0, 10240, 37568, 21504},
    {8, 0, false, 32768, 0, 24640, 49152, 0, 24576, 136896, 16 * 6144 + 4 * 2048},
    {8, 1, false, 32768, 0, 3136, 6144, 0, 24576, 72384, 8 * 6144 + 8 * 768 + 4 * 2048},
    {8, 1, true, 4096, 0, 3136, 6144, 0, 24576, 43712, 8 * 6144 + 8 * 768 + 4 * 2048},
    {8, 2, false, 32768, 0, 3136, 6144, 0, 24576, 72384, 4 * 6144 + 12 * 768 + 4 * 2048},
    {8, 2, true, 4096, 0, 3136, 6144, 0, 24576, 43712, 4 * 6144 + 12 * 768 + 4 * 2048},
    {8, 3, false, 0, 4096, 3136, 6144, 32768, 24576, 76480, 16 * 768 + 4 * 256},
    {8, 3, true, 4096, 0, 3136, 6144, 0, 24576, 43712, 16 * 768 + 4 * 256},
};

/* The same with 16-bit parameters, of which a block is 512 bytes: masters of the trainable blocks (8; 10 or 5; 24 or 3)
 * on top, and 4 bytes fewer for parameters. */
static const byte_row half_rows[] = {
    {1, 0, false, 4608, 8192, 8256, 16384, 0, 7168, 50368, 16 * 2048 + 2 * 256},
    {1, 3, false, 4608, 8192, 8256, 16384, 0, 7168, 50368, 16 * 2048 + 2 * 256},
    {2, 0, false, 6144, 10240, 10304, 20480, 0, 10240, 63168, 41984},
    {2, 1, false, 6144, 5120, 5184, 10240, 0, 10240, 42688, 26624},
    {2, 1, true, 3072, 5120, 5184, 10240, 0, 10240, 39616, 26624},
    {2, 2, false, 6144, 5120, 5184, 10240, 0, 10240, 42688, 24064},
    {2, 3, false, 3072, 5120, 5184, 10240, 6144, 10240, 45760, 20992},
    {2, 3, true, 3072, 5120, 5184, 10240, 0, 10240, 39616, 20992},
    {8, 0, false, 16384, 24576, 24640, 49152, 0, 24576, 145088, 16 * 6144 + 2 * 2048},
    {8, 3, false, 2048, 3072, 3136, 6144, 16384, 24576, 61120, 16 * 768 + 2 * 256},
};

/* And with gradients that are exchanged in bf16. The caller's slots have their tenants only while these are written:
 * head [3, 3], embedding [3, 5], block [4, 4], which takes the head's. The rounded ones, each written in the last of
 * these events, stay for 3 events with several ranks: three slots; for one with one rank: one slot. */
static const byte_row half_reduced_rows[] = {
    {1, 3, false, 4608, 8192, 8256, 16384, 0, 7168 + 2048, 52416, 16 * 2048 + 2 * 256},
    {2, 0, false, 6144, 10240, 10304, 20480, 0, 8192 + 5120, 66240, 41984},
    {2, 1, false, 6144, 5120, 5184, 10240, 0, 8192 + 5120, 45760, 26624},
    {2, 3, false, 3072, 5120, 5184, 10240, 6144, 8192 + 5120, 48832, 20992},
    {8, 3, false, 2048, 3072, 3136, 6144, 16384, 16384 + 12288, 65216, 16 * 768 + 2 * 256},
};
static const byte_row reduced_rows[] = {
    {2, 1, false, 12288, 0, 5184, 10240, 0, 8192 + 5120, 46784, 32768},
};

static void check_rows(const byte_row *table, size_t count, sherd_dtype parameters, sherd_dtype reduced) {
    model_box box;
    box_three_units(&box);
    for (size_t i = 0; i < count; i++) {
        const byte_row *row = &table[i];
        shd_policy policy = policy_of(row->world_size, row->stage, row->shared, 1);
        policy.parameter_dtype = parameters;
        policy.reduce_dtype = reduced;
        shd_plan *plan = plan_of(&box, policy);
        const int64_t expected[SHD_CATEGORIES] = {
            [SHD_CATEGORY_PARAMETERS] = row->parameters,        [SHD_CATEGORY_MASTER] = row->master,
            [SHD_CATEGORY_GRADIENTS] = row->gradients,          [SHD_CATEGORY_OPTIMIZER] = row->optimizer,
            [SHD_CATEGORY_GATHER_BUFFERS] = row->gather,        [SHD_CATEGORY_REDUCE_BUFFERS] = row->reduce,
            [SHD_CATEGORY_ACTIVATIONS] = 128 + 1024 + 64 + 512, [SHD_CATEGORY_LOGITS] = 4032};
        for (int c = 0; c < SHD_CATEGORIES; c++)
            cr_assert_eq(plan->category_bytes[c], expected[c], "row %zu, %s: %ld, not %ld", i,
                         shd_category_text((shd_category)c), (long)plan->category_bytes[c], (long)expected[c]);
        cr_assert_eq(plan->allocated_bytes, row->allocated, "row %zu: %ld", i, (long)plan->allocated_bytes);
        cr_assert_eq(plan->model_state_bytes, row->model_state, "row %zu: %ld", i, (long)plan->model_state_bytes);
        shd_plan_destroy(plan);
    }
}

#define CHECK_ROWS(table, parameters, reduced) check_rows(table, sizeof table / sizeof *table, parameters, reduced)

Test(plan_bytes, costs_what_was_computed_by_hand_for_three_units) { CHECK_ROWS(rows, SHERD_FP32, SHERD_FP32); }

Test(plan_bytes, costs_what_was_computed_by_hand_with_16_bit_parameters) {
    CHECK_ROWS(half_rows, SHERD_BF16, SHERD_FP32);
    CHECK_ROWS(half_rows, SHERD_FP16, SHERD_FP32);
}

Test(plan_bytes, costs_what_was_computed_by_hand_with_gradients_exchanged_in_16_bits) {
    CHECK_ROWS(half_reduced_rows, SHERD_BF16, SHERD_BF16);
    CHECK_ROWS(reduced_rows, SHERD_FP32, SHERD_BF16);
}

Test(plan_bytes, refuses_to_exchange_gradients_in_fp16) {
    model_box box;
    box_three_units(&box);
    shd_policy policy = policy_of(2, 1, false, 1);
    policy.reduce_dtype = SHERD_FP16;
    shd_plan *plan = NULL;
    cr_assert_eq(shd_plan_create(&box.model, &policy, &plan), SHERD_CONFIG);
    cr_assert_str_eq(sherd_last_error(), "shard.reduce_dtype is fp16; it must be fp32 or bf16");
}

Test(plan_bytes, places_buffers_by_stage_and_gather_mode) {
    model_box box;
    box_three_units(&box);
    static const struct {
        int32_t world_size, stage;
        bool shared;
        shd_place parameters, accumulator, gradient_slot;
        int64_t arenas[SHD_PLACES]; /* private, exported, host; from the table above */
    } cases[] = {
        {1, 3, false, SHD_PLACE_PRIVATE, SHD_PLACE_PRIVATE, SHD_PLACE_PRIVATE, {46784, 0, 0}},
        {2, 0, false, SHD_PLACE_PRIVATE, SHD_PLACE_EXPORTED, SHD_PLACE_EXPORTED, {12288 + 64 + 20480 + 5760, 20480, 0}},
        {2, 1, false, SHD_PLACE_EXPORTED, SHD_PLACE_PRIVATE, SHD_PLACE_EXPORTED, {5184 + 10240 + 5760, 22528, 0}},
        {2, 2, true, SHD_PLACE_HOST, SHD_PLACE_PRIVATE, SHD_PLACE_EXPORTED, {5184 + 10240 + 5760, 10240, 12288}},
        {2,
         3,
         false,
         SHD_PLACE_EXPORTED,
         SHD_PLACE_PRIVATE,
         SHD_PLACE_EXPORTED,
         {12288 + 5184 + 10240 + 5760, 16384, 0}},
        {2, 3, true, SHD_PLACE_HOST, SHD_PLACE_PRIVATE, SHD_PLACE_EXPORTED, {5184 + 10240 + 5760, 10240, 12288}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        shd_plan *plan = plan_of(&box, policy_of(cases[i].world_size, cases[i].stage, cases[i].shared, 1));
        for (int32_t b = 0; b < plan->buffer_count; b++) {
            const shd_buffer *buffer = &plan->buffers[b];
            switch (buffer->kind) {
            case SHD_BUFFER_PARAMETERS:
            case SHD_BUFFER_SHARD: cr_assert_eq(buffer->place, cases[i].parameters, "case %zu", i); break;
            case SHD_BUFFER_ACCUMULATOR: cr_assert_eq(buffer->place, cases[i].accumulator, "case %zu", i); break;
            case SHD_BUFFER_GRADIENT_SLOT: cr_assert_eq(buffer->place, cases[i].gradient_slot, "case %zu", i); break;
            default: cr_assert_eq(buffer->place, SHD_PLACE_PRIVATE, "case %zu", i);
            }
        }
        for (int place = 0; place < SHD_PLACES; place++)
            cr_assert_eq(plan->arena_bytes[place], cases[i].arenas[place], "case %zu, place %d: %ld", i, place,
                         (long)plan->arena_bytes[place]);
        shd_plan_destroy(plan);
    }
}

Test(plan_bytes, model_states_follow_the_papers_when_nothing_is_padded) {
    /* 4 units of 8 blocks of 256 elements each: Ψ = 8192, which 1, 2, 4 and 8 ranks divide into whole blocks. */
    model_box box = {0};
    for (int32_t u = 0; u < 4; u++) {
        snprintf(box.names[u], sizeof *box.names, "n%d", u);
        box.tensors[u] = (sherd_tensor){.name = box.names[u], .dim_count = 2, .shape = {8, 256}};
        box.units[u] = (sherd_unit){.name = box.names[u], .first_tensor = u, .tensor_count = 1};
    }
    box.model = (sherd_model){
        .size = sizeof box.model, .units = box.units, .unit_count = 4, .tensors = box.tensors, .tensor_count = 4};
    const int64_t psi = 8192;
    for (int64_t n = 1; n <= 8; n *= 2)
        for (int shared = 0; shared <= (n > 1); shared++) {
            const int64_t expected[][4] = {
                {16 * psi, 8 * psi + 8 * psi / n, 4 * psi + 12 * psi / n, 16 * psi / n},
                {16 * psi, 4 * psi + 12 * psi / n, 2 * psi + 14 * psi / n, 16 * psi / n},
            };
            for (int mixed = 0; mixed <= 1; mixed++)
                for (int32_t stage = shared; stage <= 3; stage++) {
                    shd_policy policy = policy_of((int32_t)n, stage, shared, 1);
                    policy.parameter_dtype = mixed ? SHERD_BF16 : SHERD_FP32;
                    shd_plan *plan = plan_of(&box, policy);
                    cr_assert_eq(plan->model_state_bytes, expected[mixed][stage], "%ld ranks, stage %d", (long)n,
                                 stage);
                    cr_assert_eq(plan->trainable_count, psi);
                    shd_plan_destroy(plan);
                }
        }
}

/* Blocks of states: embedding 4, block 3, head 1, each 260 bytes and no tensor in two of them; so 2, 2 and 1 for a rank
 * of two, and buffers of 520, 520 and 260 bytes, rounded up to 64. */
Test(plan_bytes, states_in_8_bits_take_260_bytes_for_256_elements) {
    model_box box;
    box_three_units(&box);
    for (int32_t stage = 0; stage <= 3; stage++) {
        shd_policy policy = policy_of(2, stage, false, 1);
        policy.state_dtype = SHERD_INT8;
        shd_plan *plan = plan_of(&box, policy);
        int64_t shard = 2 * (576 + 576 + 320), full = 2 * (1088 + 1088 + 576);
        cr_assert_eq(plan->category_bytes[SHD_CATEGORY_OPTIMIZER], stage ? shard : full, "stage %d: %ld", stage,
                     (long)plan->category_bytes[SHD_CATEGORY_OPTIMIZER]);
        int64_t psi = 2560, psi_frozen = 512, k = 2;
        const int64_t states[] = {8 * psi + k * 260 * psi / 256, 8 * psi + k * 260 * psi / 512,
                                  4 * psi + (4 * psi + k * 260 * psi / 256) / 2, (8 * psi + k * 260 * psi / 256) / 2};
        cr_assert_eq(plan->model_state_bytes, states[stage] + 4 * psi_frozen / (stage == 3 ? 2 : 1));
        shd_plan_destroy(plan);
    }
}

Test(plan_bytes, no_block_of_states_belongs_to_two_tensors) {
    model_box box;
    box_three_units(&box);
    box.tensors[2].frozen = false;
    shd_policy policy = policy_of(1, 0, false, 0);
    shd_plan *plan = plan_of(&box, policy);
    cr_assert_eq(plan->places[2].offset_count, 608);
    shd_plan_destroy(plan);
    policy.state_dtype = SHERD_INT8;
    plan = plan_of(&box, policy);
    cr_assert_eq(plan->places[2].offset_count, 768);
    shd_plan_destroy(plan);
}

Test(plan_bytes, refuses_states_in_16_bits) {
    model_box box;
    box_three_units(&box);
    shd_policy policy = policy_of(1, 0, false, 0);
    policy.state_dtype = SHERD_BF16;
    shd_plan *plan;
    cr_assert_eq(shd_plan_create(&box.model, &policy, &plan), SHERD_CONFIG);
    cr_assert_str_eq(sherd_last_error(), "optimizer.state_dtype is bf16; it must be fp32 or int8");
}

/* The memory of saves begins the private arena, wherever that is mapped, and moves all others. */
Test(plan_bytes, staging_begins_the_private_arena_and_is_charged_to_checkpoints) {
    model_box box;
    box_three_units(&box);
    for (int32_t stage = 0; stage <= 3; stage++) {
        shd_policy policy = policy_of(2, stage, false, 1);
        shd_plan *without = plan_of(&box, policy);
        policy.staging_bytes = 4096 + 1;
        shd_plan *with = plan_of(&box, policy);
        cr_assert_eq(without->staging_buffer, -1);
        cr_assert_eq(without->category_bytes[SHD_CATEGORY_CHECKPOINT], 0);
        const shd_buffer *staging = &with->buffers[with->staging_buffer];
        cr_assert(staging->kind == SHD_BUFFER_STAGING && staging->place == SHD_PLACE_PRIVATE && !staging->transient);
        cr_assert(staging->offset_bytes == 0 && staging->bytes == 4160 && staging->charged_bytes == 4160);
        cr_assert_eq(with->category_bytes[SHD_CATEGORY_CHECKPOINT], 4160);
        cr_assert_eq(with->allocated_bytes, without->allocated_bytes + 4160);
        cr_assert_eq(with->arena_bytes[SHD_PLACE_PRIVATE], without->arena_bytes[SHD_PLACE_PRIVATE] + 4160);
        cr_assert_eq(with->arena_bytes[SHD_PLACE_EXPORTED], without->arena_bytes[SHD_PLACE_EXPORTED]);
        cr_assert_eq(with->model_state_bytes, without->model_state_bytes);
        cr_assert_neq(shd_plan_hash(with), shd_plan_hash(without));
        shd_plan_destroy(with);
        shd_plan_destroy(without);
    }
    shd_policy policy = policy_of(1, 0, false, 0);
    policy.staging_bytes = -1;
    shd_plan *plan = NULL;
    cr_assert_eq(shd_plan_create(&box.model, &policy, &plan), SHERD_CONFIG);
    cr_assert_str_eq(sherd_last_error(), "staging_bytes is -1; it must not be negative");
}
