/* A decoder against float64 forwards over whole sequences, however its tokens are cut into runs. */
#include "harness.h"
#include "plain.h"

#include "runtime/base/memory.h"
#include "runtime/model/decoder.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Contexts above and below the longest run of 64; grouped queries, one key head for all, tied or not. */
static const shd_model_config configs[] = {
    {.family = SHD_MODEL_GPT2,
     .vocab_size = 61,
     .context = 13,
     .d_model = 20,
     .n_layer = 3,
     .n_head = 5,
     .tied_embeddings = true,
     .micro_batch = 1,
     .threads = 1},
    {.family = SHD_MODEL_GPT2,
     .vocab_size = 300,
     .context = 150,
     .d_model = 24,
     .n_layer = 2,
     .n_head = 3,
     .micro_batch = 1,
     .threads = 1},
    {.family = SHD_MODEL_LLAMA,
     .vocab_size = 61,
     .context = 13,
     .d_model = 24,
     .n_layer = 3,
     .n_head = 4,
     .n_kv_head = 2,
     .d_ff = 37,
     .rope_theta = 1e4,
     .tied_embeddings = true,
     .micro_batch = 1,
     .threads = 1},
    {.family = SHD_MODEL_LLAMA,
     .vocab_size = 61,
     .context = 150,
     .d_model = 24,
     .n_layer = 2,
     .n_head = 6,
     .n_kv_head = 1,
     .d_ff = 40,
     .rope_theta = 5e5,
     .micro_batch = 1,
     .threads = 1},
    {.family = SHD_MODEL_LLAMA,
     .vocab_size = 17,
     .context = 1,
     .d_model = 8,
     .n_layer = 1,
     .n_head = 2,
     .n_kv_head = 2,
     .d_ff = 8,
     .rope_theta = 1e4,
     .micro_batch = 1,
     .threads = 1},
};
enum { CONFIGS = sizeof configs / sizeof *configs, PRECISIONS = 3, MAX_VOCABULARY = 300, MAX_CONTEXT = 150 };

/* What decoder.h promises of the logits: their error, relative to the largest of them. */
static const double tolerances[] = {[SHERD_FP32] = 1e-5, [SHERD_BF16] = 8e-2, [SHERD_FP16] = 1e-2};

/* Every config in every precision: number `which` of CONFIGS · PRECISIONS. */
static shd_model_config config_of(int which) {
    shd_model_config config = configs[which % CONFIGS];
    config.precision = (sherd_dtype)(which / CONFIGS);
    return config;
}

typedef struct subject {
    harness h;
    shd_decoder *decoder;
    double **wide; /* the parameters in double */
} subject;

static subject open_subject(const shd_model_config *config) {
    subject s;
    harness_open(&s.h, config, 0.3, 17);
    cr_assert_eq(shd_decoder_create(s.h.model, s.h.pool, &s.decoder), SHERD_OK, "%s", sherd_last_error());
    s.wide = calloc((size_t)s.h.description->tensor_count, sizeof *s.wide);
    for (int32_t t = 0; t < s.h.description->tensor_count; t++) {
        int64_t count = harness_elements(&s.h, t);
        s.wide[t] = calloc((size_t)count, sizeof **s.wide);
        for (int64_t i = 0; i < count; i++) s.wide[t][i] = (double)s.h.parameters[t][i];
    }
    return s;
}

static void close_subject(subject *s) {
    for (int32_t t = 0; t < s->h.description->tensor_count; t++) free(s->wide[t]);
    free(s->wide);
    shd_decoder_destroy(s->decoder);
    harness_close(&s->h);
}

/* Every unit sees its own parameters and those it shares, no others. */
static void run(subject *s, int64_t past, int64_t count) {
    const sherd_model *d = s->h.description;
    const void **parameters = calloc((size_t)d->tensor_count, sizeof *parameters);
    shd_decoder_begin(s->decoder, past, s->h.inputs + past, count);
    for (int32_t unit = 0; unit < d->unit_count; unit++) {
        const sherd_unit *u = &d->units[unit];
        memset(parameters, 0, (size_t)d->tensor_count * sizeof *parameters);
        for (int32_t i = -1; i < u->share_count; i++) {
            const sherd_unit *lent = i < 0 ? u : &d->units[u->shares[i]];
            for (int32_t t = lent->first_tensor; t < lent->first_tensor + lent->tensor_count; t++)
                parameters[t] = s->h.stored[t];
        }
        const sherd_view view = {.unit = unit, .parameters = parameters};
        cr_assert_eq(shd_decoder_forward(s->decoder, &view), SHERD_OK, "%s", sherd_last_error());
    }
    free(parameters);
}

static void expect_logits(subject *s, const char *what, int64_t count) {
    double exact[MAX_VOCABULARY], largest = 0, error = 0;
    const float *logits = shd_decoder_logits(s->decoder);
    plain_logits(&s->h.config, s->wide, s->h.inputs, count, exact);
    for (int64_t i = 0; i < s->h.config.vocab_size; i++) {
        largest = fmax(largest, fabs(exact[i]));
        error = fmax(error, fabs((double)logits[i] - exact[i]));
    }
    cr_assert(error <= tolerances[s->h.config.precision] * largest, "%s, %d tokens: %g of %g", what, (int)count, error,
              largest);
}

Test(decoder, gives_the_logits_of_a_whole_forward_token_by_token) {
    for (int c = 0; c < CONFIGS * PRECISIONS; c++) {
        const shd_model_config config = config_of(c);
        subject s = open_subject(&config);
        for (int64_t past = 0; past < config.context; past++) {
            run(&s, past, 1);
            expect_logits(&s, "token by token", past + 1);
        }
        close_subject(&s);
    }
}

Test(decoder, gives_the_logits_of_a_whole_forward_however_runs_are_cut) {
    static const int64_t cuts[] = {64, 63, 2, 7, 30};
    for (int c = 0; c < CONFIGS * PRECISIONS; c++) {
        const shd_model_config config = config_of(c);
        subject s = open_subject(&config);
        int64_t longest = shd_decoder_longest_run(s.h.model);
        cr_assert_eq(longest, config.context < 64 ? config.context : 64);
        for (size_t k = 0; k < sizeof cuts / sizeof *cuts; k++)
            for (int64_t past = 0, count; past < config.context; past += count) {
                count = cuts[k] < longest ? cuts[k] : longest;
                if (past % 3 == 2 && count > 1) count--; /* ragged */
                if (count > config.context - past) count = config.context - past;
                run(&s, past, count);
                expect_logits(&s, "in runs", past + count);
            }
        close_subject(&s);
    }
}

Test(decoder, takes_up_an_earlier_place_as_if_nothing_had_followed) {
    for (int c = 0; c < CONFIGS * PRECISIONS; c++) {
        const shd_model_config config = config_of(c);
        if (config.context < 13) continue;
        subject s = open_subject(&config);
        size_t bytes = (size_t)config.vocab_size * sizeof(float);
        float before[MAX_VOCABULARY];
        run(&s, 0, 5);
        run(&s, 5, 1);
        memcpy(before, shd_decoder_logits(s.decoder), bytes);
        int32_t kept = s.h.inputs[5];
        s.h.inputs[5] = (kept + 1) % (int32_t)config.vocab_size;
        run(&s, 5, 4);
        cr_assert_neq(memcmp(before, shd_decoder_logits(s.decoder), bytes), 0);
        s.h.inputs[5] = kept;
        run(&s, 5, 1);
        cr_assert_eq(memcmp(before, shd_decoder_logits(s.decoder), bytes), 0);
        close_subject(&s);
    }
}

Test(decoder, gives_the_same_bits_with_any_number_of_threads) {
    static float first[MAX_CONTEXT][MAX_VOCABULARY];
    for (int c = 0; c < CONFIGS * PRECISIONS; c++)
        for (int32_t threads = 1; threads <= 3; threads++) {
            shd_model_config config = config_of(c);
            config.threads = threads;
            subject s = open_subject(&config);
            size_t bytes = (size_t)config.vocab_size * sizeof(float);
            int64_t start = config.context / 3;
            if (start > 0) run(&s, 0, start);
            for (int64_t past = start; past < config.context; past++) {
                run(&s, past, 1);
                if (threads == 1)
                    memcpy(first[past], shd_decoder_logits(s.decoder), bytes);
                else
                    cr_assert_eq(memcmp(first[past], shd_decoder_logits(s.decoder), bytes), 0, "config %d, %d threads",
                                 c, threads);
            }
            close_subject(&s);
        }
}

/* Threads of its own, and no bound model: as `sherd sample` has it. */
Test(decoder, brings_its_own_threads_when_none_are_lent) {
    subject s = open_subject(&configs[1]);
    shd_decoder *lent = s.decoder;
    run(&s, 0, 20);
    float logits[MAX_VOCABULARY];
    size_t bytes = (size_t)configs[1].vocab_size * sizeof(float);
    memcpy(logits, shd_decoder_logits(lent), bytes);
    shd_model *model;
    shd_model_config config = configs[1];
    config.threads = 2;
    cr_assert_eq(shd_model_create(&config, &model), SHERD_OK);
    cr_assert_eq(shd_decoder_create(model, NULL, &s.decoder), SHERD_OK);
    run(&s, 0, 20);
    cr_assert_eq(memcmp(logits, shd_decoder_logits(s.decoder), bytes), 0);
    shd_decoder_destroy(s.decoder);
    shd_model_destroy(model);
    s.decoder = lent;
    close_subject(&s);
}

Test(decoder, takes_the_memory_it_says_and_none_in_its_runs) {
    for (int c = 0; c < CONFIGS * PRECISIONS; c++) {
        int64_t before = shd_memory_held(SHD_MEMORY_ARENA);
        const shd_model_config config = config_of(c);
        subject s = open_subject(&config);
        cr_assert_eq(shd_memory_held(SHD_MEMORY_ARENA) - before, shd_decoder_bytes(s.h.model));
        int64_t calls = shd_memory_calls();
        run(&s, 0, shd_decoder_longest_run(s.h.model));
        cr_assert_eq(shd_memory_calls(), calls);
        close_subject(&s);
        cr_assert_eq(shd_memory_held(SHD_MEMORY_ARENA), before);
    }
}

Test(decoder, keeps_keys_and_values_of_its_key_heads_only) {
    int64_t bytes[2];
    for (int i = 0; i < 2; i++) {
        shd_model_config config = configs[3];
        config.n_kv_head = i ? 6 : 1;
        shd_model *model;
        cr_assert_eq(shd_model_create(&config, &model), SHERD_OK);
        bytes[i] = shd_decoder_bytes(model);
        shd_model_destroy(model);
    }
    const int64_t row_bytes = 5 * 4 * 2 * 4; /* five more heads of four floats, keys and values */
    const int64_t cached = 2 * 150 * row_bytes, work = 2 * 64 * row_bytes;
    cr_assert(bytes[1] - bytes[0] >= cached && bytes[1] - bytes[0] <= cached + work, "%d more bytes",
              (int)(bytes[1] - bytes[0]));
}
