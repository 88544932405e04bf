/* Documents packed into one sequence, attention staying within each, against the same documents by themselves. */
#include "harness.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { CONTEXT = 24, DOCUMENTS = 3 };
static const int32_t borders[DOCUMENTS + 1] = {0, 5, 13, CONTEXT};

static const shd_model_config llama = {.family = SHD_MODEL_LLAMA,
                                       .vocab_size = 23,
                                       .context = CONTEXT,
                                       .d_model = 24,
                                       .n_layer = 2,
                                       .n_head = 6,
                                       .n_kv_head = 2,
                                       .d_ff = 17,
                                       .rope_theta = 50,
                                       .micro_batch = 1,
                                       .threads = 1};

/* Of every place, the start of its document. */
static void fill_starts(int32_t starts[CONTEXT]) {
    for (int d = 0; d < DOCUMENTS; d++)
        for (int32_t i = borders[d]; i < borders[d + 1]; i++) starts[i] = borders[d];
}

static void bind(harness *h, const int32_t *starts) {
    shd_model_bind(h->model, h->pool, &(shd_batch){h->inputs, h->targets, h->losses, starts});
}

/* Rotary positions tell only how far tokens are from each other: a document gives the same losses and gradients
 * wherever in a sequence it stands. */
Test(documents, of_a_packed_sequence_train_as_if_they_were_alone) {
    shd_model_config apart_config = llama;
    apart_config.micro_batch = DOCUMENTS;
    harness packed, apart;
    harness_open(&packed, &llama, 0.3, 1);
    harness_open(&apart, &apart_config, 0.3, 1);
    int32_t starts[CONTEXT];
    fill_starts(starts);
    bind(&packed, starts);
    for (int32_t t = 0; t < packed.description->tensor_count; t++)
        memcpy(apart.parameters[t], packed.parameters[t], (size_t)harness_elements(&packed, t) * sizeof(float));
    for (int i = 0; i < DOCUMENTS * CONTEXT; i++) apart.inputs[i] = 0, apart.targets[i] = -1;
    for (int d = 0; d < DOCUMENTS; d++)
        for (int32_t i = borders[d]; i < borders[d + 1]; i++) {
            apart.inputs[d * CONTEXT + i - borders[d]] = packed.inputs[i];
            apart.targets[d * CONTEXT + i - borders[d]] = packed.targets[i];
        }
    harness_train(&packed, 0.1f);
    harness_train(&apart, 0.1f);
    for (int d = 0; d < DOCUMENTS; d++)
        for (int32_t i = borders[d]; i < borders[d + 1]; i++)
            cr_assert_float_eq(packed.losses[i], apart.losses[d * CONTEXT + i - borders[d]], 1e-5);
    for (int32_t t = 0; t < packed.description->tensor_count; t++) {
        float largest = 0;
        for (int64_t i = 0; i < harness_elements(&packed, t); i++)
            largest = fmaxf(largest, fabsf(apart.gradients[t][i]));
        for (int64_t i = 0; i < harness_elements(&packed, t); i++)
            cr_assert_float_eq(packed.gradients[t][i], apart.gradients[t][i], 3e-5f * largest + 1e-7f, "%s[%d]",
                               packed.description->tensors[t].name, (int)i);
    }
    harness_close(&packed);
    harness_close(&apart);
}

/* Learned positions too: what stands in another document changes nothing, bit by bit. */
Test(documents, know_nothing_of_those_before) {
    shd_model_config gpt2 = llama;
    gpt2.family = SHD_MODEL_GPT2;
    gpt2.n_kv_head = gpt2.d_ff = 0;
    gpt2.rope_theta = 0;
    const shd_model_config *const configs[] = {&llama, &gpt2};
    int32_t starts[CONTEXT];
    fill_starts(starts);
    for (int c = 0; c < 2; c++) {
        harness h;
        harness_open(&h, configs[c], 0.3, 1);
        double before[2][CONTEXT];
        for (int masked = 0; masked < 2; masked++) {
            bind(&h, masked ? starts : NULL);
            harness_train(&h, 0.1f);
            memcpy(before[masked], h.losses, sizeof before[masked]);
        }
        h.inputs[2] = (h.inputs[2] + 1) % 23;
        bool changed = false;
        for (int masked = 0; masked < 2; masked++) {
            bind(&h, masked ? starts : NULL);
            harness_train(&h, 0.1f);
            for (int i = borders[1]; i < CONTEXT; i++) {
                if (masked) cr_assert_eq(h.losses[i], before[1][i], "place %d", i);
                changed = changed || (!masked && h.losses[i] != before[0][i]);
            }
        }
        cr_assert(changed);
        harness_close(&h);
    }
}
