/* Models to plan for: small ones written out, and random ones with everything that is legal. */
#ifndef TESTS_SHARD_MODELS_H
#define TESTS_SHARD_MODELS_H

#include "shard/plan.h"

#include <stdio.h>
#include <string.h>

enum { MAX_UNITS = 8, MAX_UNIT_TENSORS = 4 };

/* A description with memory of its own. */
typedef struct model_box {
    sherd_model model;
    sherd_unit units[MAX_UNITS];
    sherd_tensor tensors[MAX_UNITS * MAX_UNIT_TENSORS];
    int32_t shares[MAX_UNITS][MAX_UNITS];
    char names[MAX_UNITS * (MAX_UNIT_TENSORS + 1)][16];
} model_box;

static inline shd_policy policy_of(int32_t world_size, int32_t stage, bool shared, int32_t prefetch) {
    return (shd_policy){.world_size = world_size,
                        .stage = stage,
                        .gather_shared = shared,
                        .prefetch = prefetch,
                        .state_count = 2,
                        .gradient_slots = world_size == 1 ? 1 : 3};
}

/* Embedding (one matrix), block (a matrix, a frozen bias), head (a norm; reads the embedding too). */
static inline void box_three_units(model_box *box) {
    *box = (model_box){
        .tensors = {{.name = "wte", .dim_count = 2, .shape = {10, 100}},
                    {.name = "block.w", .dim_count = 2, .shape = {30, 20}},
                    {.name = "block.b", .dim_count = 1, .shape = {20}, .frozen = true},
                    {.name = "norm", .dim_count = 1, .shape = {7}}},
        .units = {{.name = "embedding", .first_tensor = 0, .tensor_count = 1, .activation_bytes = 100},
                  {.name = "block", .first_tensor = 1, .tensor_count = 2, .activation_bytes = 1000},
                  {.name = "head", .first_tensor = 3, .tensor_count = 1, .share_count = 1, .activation_bytes = 64}},
    };
    box->units[2].shares = box->shares[2]; /* {0} */
    box->model = (sherd_model){.size = sizeof box->model,
                               .units = box->units,
                               .unit_count = 3,
                               .tensors = box->tensors,
                               .tensor_count = 4,
                               .scratch_bytes = 500,
                               .logits_bytes = 4000};
}

/* A small generator (xorshift64*); never 0. */
static inline uint32_t random_below(uint64_t *state, uint32_t bound) {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return (uint32_t)((*state * UINT64_C(2685821657736338717)) >> 33) % bound;
}

static inline void random_shape(uint64_t *random, sherd_tensor *tensor) {
    static const int64_t sizes[] = {0, 1, 2, 15, 16, 17, 31, 64, 255, 256, 257, 17 * 257};
    switch (random_below(random, 4)) {
    case 0: tensor->dim_count = 0; break; /* a scalar */
    case 1:
        tensor->dim_count = 2;
        tensor->shape[0] = 1 + random_below(random, 40);
        tensor->shape[1] = 1 + random_below(random, 40);
        break;
    default: tensor->dim_count = 1; tensor->shape[0] = sizes[random_below(random, sizeof sizes / sizeof *sizes)];
    }
}

/* Any number of units and tensors, none included; frozen tensors, frozen units, shared units, empty ones. */
static inline void box_random(model_box *box, uint64_t seed) {
    uint64_t random = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    *box = (model_box){0};
    int32_t unit_count = 1 + (int32_t)random_below(&random, MAX_UNITS), tensor_count = 0;
    char(*name)[16] = box->names;
    for (int32_t u = 0; u < unit_count; u++) {
        sherd_unit *unit = &box->units[u];
        snprintf(*name, sizeof *name, "u%d", u);
        unit->name = *name++;
        unit->first_tensor = tensor_count;
        unit->tensor_count = (int32_t)random_below(&random, MAX_UNIT_TENSORS + 1);
        unit->output_bytes = random_below(&random, 3) ? random_below(&random, 300) : 0;
        unit->activation_bytes = random_below(&random, 3) ? random_below(&random, 1000) : 0;
        unit->remade_bytes = random_below(&random, 3) ? random_below(&random, 500) : 0;
        uint32_t frozen_of_4 = random_below(&random, 5); /* 4: all of them */
        for (int32_t t = 0; t < unit->tensor_count; t++) {
            sherd_tensor *tensor = &box->tensors[tensor_count++];
            snprintf(*name, sizeof *name, "u%d.t%d", u, t);
            tensor->name = *name++;
            random_shape(&random, tensor);
            tensor->frozen = random_below(&random, 4) < frozen_of_4;
        }
        unit->shares = box->shares[u];
        for (int32_t v = 0; v < u; v++)
            if (random_below(&random, 4) == 0) box->shares[u][unit->share_count++] = v;
    }
    box->model = (sherd_model){.size = sizeof box->model,
                               .units = box->units,
                               .unit_count = unit_count,
                               .tensors = box->tensors,
                               .tensor_count = tensor_count,
                               .scratch_bytes = random_below(&random, 2000),
                               .logits_bytes = random_below(&random, 2000)};
}

#endif
