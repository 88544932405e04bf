/* Every allocation of a model and of its loading fails once: an error, and nothing left behind. */
#include "golden.h"

#include "runtime/model/decoder.h"
#include "tests/support/failing_memory.h"

#include <criterion/criterion.h>

static void check_model(const shd_model_config *config, int64_t allocations) {
    for (int64_t failing = 0;; failing++) {
        failing_memory_after(failing);
        shd_model *model = NULL;
        sherd_status status = shd_model_create(config, &model);
        if (status == SHERD_OK) {
            cr_assert_eq(failing, allocations);
            shd_model_destroy(model);
            cr_assert_eq(failing_memory_live(), 0);
            return;
        }
        cr_assert_eq(status, SHERD_MEMORY, "allocation %ld", (long)failing);
        cr_assert_null(model);
        cr_assert_eq(failing_memory_live(), 0, "allocation %ld leaks", (long)failing);
    }
}

Test(model_memory, is_given_back_whichever_allocation_of_a_model_fails) {
    golden gpt2, llama;
    golden_open(&gpt2, "gpt2-tiny");
    golden_open(&llama, "llama-tiny");
    check_model(&gpt2.config, 5);
    check_model(&llama.config, 6); /* and the rotary table */
    golden_close(&gpt2);
    golden_close(&llama);
}

Test(model_memory, is_given_back_whichever_allocation_of_loading_fails) {
    golden g;
    golden_open(&g, "gpt2-tiny");
    shd_model *model;
    cr_assert_eq(shd_model_create(&g.config, &model), SHERD_OK);
    int64_t before = failing_memory_live();
    for (int64_t failing = 0; failing < 4; failing++) {
        failing_memory_after(failing);
        shd_weights *weights = NULL;
        cr_assert_eq(shd_weights_create(model, &g.source, &weights), SHERD_MEMORY, "allocation %ld", (long)failing);
        cr_assert_null(weights);
        cr_assert_eq(failing_memory_live(), before, "allocation %ld leaks", (long)failing);
    }
    failing_memory_after(4);
    shd_weights *weights;
    cr_assert_eq(shd_weights_create(model, &g.source, &weights), SHERD_OK);
    shd_weights_destroy(weights);
    cr_assert_eq(failing_memory_live(), before);
    shd_model_destroy(model);
    golden_close(&g);
}

Test(model_memory, is_given_back_whichever_allocation_of_a_decoder_fails) {
    golden g;
    golden_open(&g, "llama-tiny");
    shd_model *model;
    cr_assert_eq(shd_model_create(&g.config, &model), SHERD_OK);
    int64_t before = failing_memory_live();
    for (int64_t failing = 0;; failing++) {
        failing_memory_after(failing);
        shd_decoder *decoder = NULL;
        sherd_status status = shd_decoder_create(model, NULL, &decoder);
        if (status == SHERD_OK) {
            cr_assert_geq(failing, 3);
            shd_decoder_destroy(decoder);
            break;
        }
        cr_assert_eq(status, SHERD_MEMORY, "allocation %ld", (long)failing);
        cr_assert_null(decoder);
        cr_assert_eq(failing_memory_live(), before, "allocation %ld leaks", (long)failing);
    }
    cr_assert_eq(failing_memory_live(), before);
    shd_model_destroy(model);
    golden_close(&g);
}
