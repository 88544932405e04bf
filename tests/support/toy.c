#include "support/toy.h"

#include "runtime/base/dtype.h"
#include "support/ranks.h"

#include <stdlib.h>
#include <string.h>

static const sherd_tensor tensors[TOY_TENSORS] = {
    [TOY_TABLE] = {.name = "table", .dim_count = 2, .shape = {17, 33}},
    [TOY_OFFSET] = {.name = "offset", .dim_count = 1, .shape = {5}, .frozen = true},
    [TOY_GAIN] = {.name = "gain", .dim_count = 0},
    [TOY_NOTHING] = {.name = "nothing", .dim_count = 2, .shape = {0, 3}},
    [TOY_MATRIX] = {.name = "matrix", .dim_count = 2, .shape = {7, 41}},
    [TOY_MASK] = {.name = "mask", .dim_count = 1, .shape = {300}, .frozen = true},
    [TOY_BIAS] = {.name = "bias", .dim_count = 1, .shape = {19}},
};
static const int32_t shared_by_head[] = {0};
static const sherd_unit units[TOY_UNITS] = {
    {.name = "embedding",
     .first_tensor = TOY_TABLE,
     .tensor_count = 2,
     .output_bytes = 100,
     .activation_bytes = 100,
     .remade_bytes = 40},
    {.name = "middle", .first_tensor = TOY_GAIN, .tensor_count = 3},
    {.name = "constant", .first_tensor = TOY_MASK, .tensor_count = 1, .output_bytes = 64, .activation_bytes = 64},
    {.name = "head", .first_tensor = TOY_BIAS, .tensor_count = 1, .shares = shared_by_head, .share_count = 1},
};

const sherd_model *toy_model(void) {
    static const sherd_model model = {.size = sizeof(sherd_model),
                                      .units = units,
                                      .unit_count = TOY_UNITS,
                                      .tensors = tensors,
                                      .tensor_count = TOY_TENSORS,
                                      .scratch_bytes = 1000,
                                      .logits_bytes = 10};
    return &model;
}

int64_t toy_count(int32_t tensor) {
    int64_t count = 1;
    for (int32_t d = 0; d < tensors[tensor].dim_count; d++) count *= tensors[tensor].shape[d];
    return count;
}

static float start(int32_t tensor, int64_t i) { return (float)((i * 37 + tensor * 11) % 101 - 50) / 64.0f; }

sherd_status toy_fill(void *user, int32_t tensor, int64_t first, int64_t count, float *values) {
    (void)user;
    for (int64_t i = 0; i < count; i++) values[i] = start(tensor, first + i);
    return SHERD_OK;
}

/* Not dyadic, so that sums round and their order shows. */
static float gradient_at(int32_t tensor, int64_t i, int64_t sample, int32_t unit, float parameter, float scale) {
    float wave = (float)((i * 7 + sample * 13 + unit * 5 + tensor) % 23 - 11) / 7.0f;
    return (wave + parameter / 2) * scale;
}

void toy_oracle_init(toy_oracle *oracle) {
    oracle->sample = oracle->blocks = 0;
    oracle->precision = oracle->reduce_dtype = SHERD_FP32;
    oracle->loss_scale = 1;
    for (int32_t t = 0; t < TOY_TENSORS; t++) {
        size_t bytes = (size_t)(toy_count(t) + 1) * sizeof(float);
        oracle->parameters[t] = calloc(1, bytes);
        oracle->gradients[t] = calloc(1, bytes);
        toy_fill(NULL, t, 0, toy_count(t), oracle->parameters[t]);
    }
}

void toy_oracle_fini(toy_oracle *oracle) {
    for (int32_t t = 0; t < TOY_TENSORS; t++) {
        free(oracle->parameters[t]);
        free(oracle->gradients[t]);
    }
}

static int32_t unit_of(int32_t tensor) {
    return tensor <= TOY_OFFSET ? 0 : tensor <= TOY_MATRIX ? 1 : tensor == TOY_MASK ? 2 : 3;
}

static float round_to(sherd_dtype dtype, float value) {
    uint32_t bits = 0;
    float rounded;
    shd_round(dtype, 1, &value, &bits);
    shd_widen(dtype, 1, &bits, &rounded);
    return rounded;
}

static float sample_gradient(const toy_oracle *oracle, int32_t t, int64_t i, int64_t sample, float scale) {
    float parameter = round_to(oracle->precision, oracle->parameters[t][i]);
    float own = gradient_at(t, i, sample, unit_of(t), parameter, scale);
    return round_to(oracle->reduce_dtype, t == TOY_TABLE ? gradient_at(t, i, sample, 3, parameter, scale) + own : own);
}

static float block_gradient(const toy_oracle *oracle, int32_t t, int64_t i, int64_t first, int64_t count, float scale) {
    float sum = sample_gradient(oracle, t, i, first, scale);
    for (int64_t b = 1; b < count; b++) sum += sample_gradient(oracle, t, i, first + b, scale);
    return sum;
}

void toy_oracle_step(toy_oracle *oracle, int64_t batch, float lr) {
    float scale = oracle->loss_scale / (float)batch;
    int64_t block = oracle->blocks ? batch / oracle->blocks : batch, begin = oracle->sample;
    oracle->sample += batch;
    if (oracle->loss_scale == 0) return;
    for (int32_t t = 0; t < TOY_TENSORS; t++) {
        if (tensors[t].frozen) continue;
        for (int64_t i = 0; i < toy_count(t); i++) {
            float sum = block_gradient(oracle, t, i, begin, block, scale);
            for (int64_t b = block; b < batch; b += block) sum += block_gradient(oracle, t, i, begin + b, block, scale);
            oracle->gradients[t][i] = sum;
        }
    }
    for (int32_t t = 0; t < TOY_TENSORS; t++)
        for (int64_t i = 0; i < toy_count(t) && !tensors[t].frozen; i++)
            oracle->parameters[t][i] -= lr * (1 / oracle->loss_scale * oracle->gradients[t][i]);
}

/* A unit's forward leaves its mark in its output and its activations; its backward must find them all. */
static int check_memory(const sherd_view *view, bool backward) {
    unsigned char *output = view->outputs[view->unit], *activations = view->activations[view->unit];
    unsigned char *remade = view->remade[view->unit];
    int mark = 1 + view->unit + TOY_UNITS * view->micro_step;
    EXPECT(!view->again || (view->training && !backward));
    EXPECT(!view->part_again || view->again);
    if (remade && backward) EXPECT(remade[39] == mark);
    if (remade && !backward) remade[39] = (unsigned char)mark;
    if (output && (backward || view->again)) EXPECT(*output == mark);
    if (output && !backward) *output = (unsigned char)mark;
    if (activations && (backward || view->part_again)) EXPECT(*activations == mark);
    if (activations && !backward && !view->part_again) memset(activations, mark, view->unit == 0 ? 100 : 64);
    return 0;
}

/* Whether `values` are the oracle's, rounded. */
static bool is_lent(const toy_oracle *before, int32_t t, const void *values) {
    int64_t count = toy_count(t), bytes = count * shd_dtype_bytes(before->precision);
    char rounded[17 * 33 * sizeof(float)];
    shd_round(before->precision, count, before->parameters[t], rounded);
    return memcmp(values, rounded, (size_t)bytes) == 0;
}

/* Exactly the unit's tensors are lent (the head's with the table), with the oracle's values. */
static int check_view(const sherd_view *view, const toy_oracle *before, int32_t unit, bool backward) {
    for (int32_t t = 0; t < TOY_TENSORS; t++) {
        bool lent = (unit_of(t) == unit || (unit == 3 && unit_of(t) == 0)) && toy_count(t) > 0;
        if (toy_count(t) == 0) continue;
        EXPECT(lent == (view->parameters[t] != NULL));
        EXPECT((lent && backward && !tensors[t].frozen) == (view->gradients[t] != NULL));
        if (lent) EXPECT(is_lent(before, t, view->parameters[t]));
    }
    EXPECT(view->scratch && view->logits && view->outputs[0] && view->activations[0] && !view->activations[1]);
    EXPECT(view->remade[0] && !view->remade[1] && !view->remade[2]);
    memset(view->scratch, 0x7F, 1000);
    return check_memory(view, backward);
}

static void write_gradients(const sherd_view *view, sherd_dtype precision, int64_t sample) {
    for (int32_t t = 0; t < TOY_TENSORS; t++) {
        float *gradient = view->gradients[t];
        if (!gradient) continue;
        float parameter[17 * 33];
        shd_widen(precision, toy_count(t), view->parameters[t], parameter);
        bool adds = t == TOY_TABLE && view->unit == 0;
        bool writes = unit_of(t) == view->unit || t == TOY_TABLE;
        for (int64_t i = 0; writes && i < toy_count(t); i++) {
            float value = gradient_at(t, i, sample, view->unit, parameter[i], view->loss_scale);
            gradient[i] = adds ? gradient[i] + value : value;
        }
    }
}

int toy_do(const toy_work *work) {
    int line = work->unchecked ? 0 : check_view(&work->view, work->before, work->view.unit, work->backward);
    if (line == 0 && work->backward) write_gradients(&work->view, work->before->precision, work->sample);
    return line;
}

static int do_now(const toy_work *work, void *user) {
    (void)user;
    return toy_do(work);
}

int toy_step(sherd_session *session, const toy_oracle *before, const sherd_options *options,
             sherd_step_result *result) {
    return toy_step_by(session, before, options, do_now, NULL, result);
}

int toy_step_by(sherd_session *session, const toy_oracle *before, const sherd_options *options, toy_run_fn run,
                void *user, sherd_step_result *result) {
    EXPECT(sherd_step_begin(session, options->micro_steps) == SHERD_OK);
    for (int32_t k = 0; k < options->micro_steps; k++) {
        int32_t split = options->world_size / options->replicas;
        int64_t first = before->sample + (int64_t)(options->rank / split) * options->micro_steps * split;
        int64_t sample = first + (int64_t)k * split + options->rank % split;
        toy_work work = {.sample = sample, .before = before};
        for (int32_t u = 0; u < TOY_UNITS; u++) {
            EXPECT(sherd_forward_begin(session, u, &work.view) == SHERD_OK && work.view.unit == u);
            int line = run(&work, user);
            if (line) return line;
            EXPECT(sherd_forward_end(session, u) == SHERD_OK);
        }
        for (int32_t u = TOY_UNITS; u-- > 0;) {
            /* embedding and constant have activations, and are not the last; embedding has remade ones too */
            bool part = options->recompute == SHERD_RECOMPUTE_PART;
            if ((part && u == 0) || (options->recompute == SHERD_RECOMPUTE_UNIT && (u == 0 || u == 2))) {
                EXPECT(sherd_backward_begin(session, u, &work.view) == SHERD_STATE);
                EXPECT(sherd_forward_begin(session, u, &work.view) == SHERD_OK);
                EXPECT(work.view.unit == u && work.view.again && work.view.part_again == part);
                work.backward = false;
                int line = run(&work, user);
                if (line) return line;
                EXPECT(sherd_forward_end(session, u) == SHERD_OK);
            }
            EXPECT(sherd_backward_begin(session, u, &work.view) == SHERD_OK && work.view.unit == u);
            work.backward = true;
            int line = run(&work, user);
            if (line) return line;
            EXPECT(sherd_backward_end(session, u) == SHERD_OK);
        }
        double loss = (double)sample;
        EXPECT(sherd_add_loss(session, &loss, 1) == SHERD_OK);
    }
    EXPECT(sherd_step(session, result) == SHERD_OK);
    return 0;
}
