/* What dropout in a model depends on. That its numbers are right is for test_gradients.c. */
#include "harness.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const shd_model_config configs[] = {
    {.family = SHD_MODEL_GPT2,
     .vocab_size = 61,
     .context = 13,
     .d_model = 20,
     .n_layer = 2,
     .n_head = 5,
     .tied_embeddings = true,
     .dropout = 0.2,
     .seed = 7,
     .micro_batch = 4,
     .threads = 1},
    {.family = SHD_MODEL_LLAMA,
     .vocab_size = 61,
     .context = 13,
     .d_model = 24,
     .n_layer = 2,
     .n_head = 4,
     .n_kv_head = 2,
     .d_ff = 37,
     .rope_theta = 1e4,
     .dropout = 0.2,
     .seed = 7,
     .micro_batch = 4,
     .threads = 1},
};
enum { CONFIGS = sizeof configs / sizeof *configs };

static float scale_of(const harness *h) { return 1.0f / (float)harness_counted(h); }

static bool same_losses(const harness *a, const harness *b) {
    return memcmp(a->losses, b->losses, (size_t)a->rows * sizeof *a->losses) == 0;
}

static bool same_gradients(const harness *a, const harness *b) {
    for (int32_t t = 0; t < a->description->tensor_count; t++)
        if (memcmp(a->gradients[t], b->gradients[t], (size_t)harness_elements(a, t) * sizeof(float)) != 0) return false;
    return true;
}

Test(dropout, gives_the_same_bits_with_any_number_of_threads_and_twice) {
    for (int c = 0; c < CONFIGS; c++) {
        shd_model_config config = configs[c];
        harness a, b;
        harness_open(&a, &config, 0.3, 5);
        harness_train(&a, scale_of(&a));
        for (config.threads = 1; config.threads <= 3; config.threads++) {
            harness_open(&b, &config, 0.3, 5);
            for (int i = 0; i < 2; i++) {
                harness_train(&b, scale_of(&b));
                cr_assert(same_losses(&a, &b) && same_gradients(&a, &b), "%d threads", config.threads);
            }
            harness_close(&b);
        }
        harness_close(&a);
    }
}

Test(dropout, leaves_evaluation_alone) {
    for (int c = 0; c < CONFIGS; c++) {
        shd_model_config without = configs[c];
        without.dropout = 0;
        harness a, b;
        harness_open(&a, &configs[c], 0.3, 5);
        harness_open(&b, &without, 0.3, 5);
        harness_evaluate(&a);
        harness_evaluate(&b);
        cr_assert(same_losses(&a, &b));
        harness_train(&a, scale_of(&a));
        harness_train(&b, scale_of(&b));
        cr_assert(!same_losses(&a, &b) && !same_gradients(&a, &b));
        harness_close(&a);
        harness_close(&b);
    }
}

Test(dropout, differs_by_seed_and_by_sequence) {
    for (int c = 0; c < CONFIGS; c++) {
        shd_model_config other = configs[c];
        other.seed++;
        harness a, b;
        harness_open(&a, &configs[c], 0.3, 5);
        harness_open(&b, &other, 0.3, 5);
        harness_train(&a, scale_of(&a));
        harness_train(&b, scale_of(&b));
        cr_assert(!same_losses(&a, &b));
        /* The same four sequences, a place further in the run. */
        memcpy(b.losses, a.losses, (size_t)a.rows * sizeof *a.losses);
        shd_model_bind(a.model, a.pool, &(shd_batch){a.inputs, a.targets, a.losses, NULL, HARNESS_FIRST_SEQUENCE + 1});
        harness_train(&a, scale_of(&a));
        cr_assert(!same_losses(&a, &b));
        harness_close(&a);
        harness_close(&b);
    }
}

/* A sequence has its masks whatever micro-batch it is in; only sums over rows of products may round differently. */
Test(dropout, goes_by_the_number_of_the_sequence_not_by_its_place_in_the_micro_batch) {
    for (int c = 0; c < CONFIGS; c++)
        for (int64_t size = 1; size <= 2; size++) {
            shd_model_config less = configs[c];
            less.micro_batch = size;
            harness a, b;
            harness_open(&a, &configs[c], 0.3, 5);
            harness_open(&b, &less, 0.3, 5);
            harness_train(&a, 1);
            int64_t differ = 0;
            for (int64_t first = 0; first < configs[c].micro_batch; first += size) {
                int64_t at = first * configs[c].context;
                shd_model_bind(
                    b.model, b.pool,
                    &(shd_batch){a.inputs + at, a.targets + at, b.losses, NULL, HARNESS_FIRST_SEQUENCE + first});
                harness_train(&b, 1);
                for (int64_t i = 0; i < b.rows; i++) differ += fabs(a.losses[at + i] - b.losses[i]) > 1e-5;
            }
            cr_assert_eq(differ, 0, "micro-batches of %d: %d losses differ", (int)size, (int)differ);
            harness_close(&a);
            harness_close(&b);
        }
}
