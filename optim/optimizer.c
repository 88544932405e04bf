#include "optim/optimizer.h"

#include "optim/rules.h"
#include "optim/schedule.h"
#include "optim/update_kernels.h"
#include "runtime/base/cut.h"
#include "runtime/base/status.h"

#include <assert.h>
#include <math.h>

/* A condition on the value of one key; NaN satisfies none of them. */
static sherd_status check_value(const char *key, double value, bool good, const char *allowed) {
    return good ? SHERD_OK : shd_fail(SHERD_CONFIG, "optimizer.%s is %g; it must be %s", key, value, allowed);
}

/* Values end in float32: what overflows there is refused here. */
static bool is_float_from_zero(double value) { return value >= 0 && value <= 3.4e38; }
static bool is_fraction(double value) { return value >= 0 && value < 1; }

static sherd_status check_momentum(const sherd_optimizer *optimizer) {
    SHD_TRY(check_value("momentum", optimizer->momentum, is_fraction(optimizer->momentum), "in [0, 1)"));
    if (optimizer->nesterov && optimizer->momentum == 0)
        return shd_fail(SHERD_CONFIG, "optimizer.nesterov is true, but optimizer.momentum is 0; give a momentum");
    return SHERD_OK;
}

static sherd_status check_muon(const sherd_optimizer *optimizer) {
    SHD_TRY(check_momentum(optimizer));
    if (optimizer->ns_steps < 1 || optimizer->ns_steps > 100)
        return shd_fail(SHERD_CONFIG, "optimizer.ns_steps is %d; it must be 1 to 100", optimizer->ns_steps);
    if ((int)optimizer->adjust_lr < SHERD_ADJUST_LR_MATCH_RMS_ADAMW || optimizer->adjust_lr > SHERD_ADJUST_LR_ORIGINAL)
        return shd_fail(SHERD_CONFIG,
                        "optimizer.adjust_lr has the unknown value %d; it must be match_rms_adamw or original",
                        (int)optimizer->adjust_lr);
    return SHERD_OK;
}

static sherd_status check_adafactor(const sherd_optimizer *optimizer) {
    SHD_TRY(check_value("beta2_decay", optimizer->beta2_decay,
                        optimizer->beta2_decay <= 0 && optimizer->beta2_decay >= -1e3, "in [-1000, 0]"));
    SHD_TRY(check_value("update_clip", optimizer->update_clip,
                        optimizer->update_clip >= 1 && optimizer->update_clip <= 1e30, "in [1, 1e30]"));
    return check_value("scale_floor", optimizer->scale_floor, is_float_from_zero(optimizer->scale_floor),
                       "0 or more, and finite in float32");
}

static sherd_status check_state_dtype(const sherd_optimizer *optimizer) {
    if (optimizer->state_dtype == SHERD_FP32) return SHERD_OK;
    if (optimizer->state_dtype != SHERD_INT8)
        return shd_fail(SHERD_CONFIG, "optimizer.state_dtype has the unknown value %d; it must be fp32 or int8",
                        (int)optimizer->state_dtype);
    if (optimizer->kind == SHERD_MUON || optimizer->kind == SHERD_ADAFACTOR)
        return shd_fail(SHERD_CONFIG, "optimizer.state_dtype is int8, but %s keeps its states in fp32; take fp32",
                        optimizer->kind == SHERD_MUON ? "muon" : "adafactor");
    if (shd_optimizer_state_count(optimizer) == 0)
        return shd_fail(SHERD_CONFIG,
                        "optimizer.state_dtype is int8, but sgd without optimizer.momentum keeps no state; take fp32");
    return SHERD_OK;
}

sherd_status shd_optimizer_check(const sherd_optimizer *optimizer) {
    if ((int)optimizer->kind < SHERD_ADAMW || optimizer->kind > SHERD_MUON)
        return shd_fail(SHERD_CONFIG,
                        "optimizer.kind (optimizer.name) has the unknown value %d; it must be adamw, sgd, lion, adam, "
                        "adafactor or muon",
                        (int)optimizer->kind);
    SHD_TRY(check_value("lr", optimizer->lr, is_float_from_zero(optimizer->lr), "0 or more, and finite in float32"));
    SHD_TRY(shd_schedule_check(optimizer));
    SHD_TRY(check_value("weight_decay", optimizer->weight_decay, is_float_from_zero(optimizer->weight_decay),
                        "0 or more, and finite in float32"));
    SHD_TRY(shd_tensor_rules_check(optimizer));
    SHD_TRY(check_state_dtype(optimizer));
    if (optimizer->kind == SHERD_SGD) return check_momentum(optimizer);
    if (optimizer->kind == SHERD_ADAFACTOR) return check_adafactor(optimizer);
    if (optimizer->kind == SHERD_MUON) SHD_TRY(check_muon(optimizer));
    SHD_TRY(check_value("beta1 (optimizer.betas[0])", optimizer->beta1, is_fraction(optimizer->beta1), "in [0, 1)"));
    SHD_TRY(check_value("beta2 (optimizer.betas[1])", optimizer->beta2, is_fraction(optimizer->beta2), "in [0, 1)"));
    if (optimizer->kind == SHERD_LION) return SHERD_OK;
    /* With eps 0, an element whose gradient has always been 0 becomes 0/0. */
    return check_value("eps", optimizer->eps, optimizer->eps >= 1e-30 && optimizer->eps <= 1e30, "in [1e-30, 1e30]");
}

int32_t shd_optimizer_state_count(const sherd_optimizer *optimizer) {
    switch (optimizer->kind) {
    case SHERD_ADAMW:
    case SHERD_MUON:
    case SHERD_ADAM: return 2;
    case SHERD_SGD: return optimizer->momentum > 0;
    case SHERD_LION: return 1;
    case SHERD_ADAFACTOR: return 0;
    }
    return 0;
}

const char *shd_optimizer_state_name(const sherd_optimizer *optimizer, int32_t index) {
    assert(index >= 0 && index < shd_optimizer_state_count(optimizer));
    if (optimizer->kind == SHERD_SGD) return "momentum";
    return index == 0 ? "exp_avg" : "exp_avg_sq";
}

bool shd_optimizer_state_is_root(const sherd_optimizer *optimizer, int32_t index) {
    assert(index >= 0 && index < shd_optimizer_state_count(optimizer));
    return index == 1;
}

double shd_clip_scale(double clip, double norm) { return clip > 0 && norm > clip ? clip / (norm + 1e-6) : 1; }

static shd_update_fn pick_update(const shd_optim_kernels *kernels, const sherd_optimizer *optimizer) {
    switch (optimizer->kind) {
    case SHERD_ADAMW:
    case SHERD_MUON: return kernels->adamw;
    case SHERD_ADAM: return kernels->adam;
    case SHERD_LION: return kernels->lion;
    case SHERD_ADAFACTOR: /* has none: it needs whole tensors */
    case SHERD_SGD: break;
    }
    if (optimizer->momentum == 0) return kernels->sgd;
    return optimizer->nesterov ? kernels->sgd_nesterov : kernels->sgd_momentum;
}

shd_update_constants shd_update_constants_make(const sherd_optimizer *optimizer, const shd_update *update) {
    double lr = update->lr, weight_decay = update->weight_decay;
    double updates = (double)update->step + 1;
    return (shd_update_constants){
        .gradient_scale = update->gradient_scale,
        .lr = (float)lr,
        .keep = (float)(1 - lr * weight_decay),
        .weight_decay = (float)weight_decay,
        .momentum = (float)optimizer->momentum,
        .beta1 = (float)optimizer->beta1,
        .beta1_rest = (float)(1 - optimizer->beta1),
        .beta2 = (float)optimizer->beta2,
        .beta2_rest = (float)(1 - optimizer->beta2),
        .step_size = (float)(lr / (1 - pow(optimizer->beta1, updates))),
        .root_factor = (float)(1 / sqrt(1 - pow(optimizer->beta2, updates))),
        .eps = (float)optimizer->eps,
    };
}

enum { SPAN_BLOCKS = SHD_SPAN / SHD_OPTIM_BLOCK_COUNT };
_Static_assert(SHD_SPAN % SHD_CODE_BLOCK_COUNT == 0, "threads share no block of codes");

typedef struct update_task {
    const shd_optim_kernels *kernels;
    shd_update_fn run;
    shd_round_fn round; /* NULL: nothing to round */
    shd_update_constants constants;
    const shd_update *update;
} update_task;

/* Elements [first, first + count) of the span; theirs are the float32 `states`. */
static void update_part(const update_task *task, float *const states[2], int64_t first, int64_t count) {
    const shd_update *update = task->update;
    task->run(&task->constants, update->parameters + first, update->gradients + first, states[0], states[1], count);
    if (task->round) task->round(update->parameters + first, (uint16_t *)update->rounded + first, count);
}

/* The same with states in 8 bits, block by block: what a block's codes stand for never leaves the cache. */
static void update_blocks(const update_task *task, int64_t first, int64_t count) {
    const shd_update *update = task->update;
    float values[2][SHD_CODE_BLOCK_COUNT], *const states[2] = {values[0], values[1]};
    for (int64_t at = first; at < first + count; at += SHD_CODE_BLOCK_COUNT) {
        int64_t block = at / SHD_CODE_BLOCK_COUNT;
        for (int32_t s = 0; s < 2 && update->codebooks[s]; s++)
            task->kernels->dequantize(update->codebooks[s], update->state_blocks[s] + block, 1, values[s]);
        update_part(task, states, at, shd_min(SHD_CODE_BLOCK_COUNT, first + count - at));
        for (int32_t s = 0; s < 2 && update->codebooks[s]; s++)
            task->kernels->quantize(update->codebooks[s], values[s], 1, update->state_blocks[s] + block);
    }
}

static void update_span(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const update_task *task = argument;
    const shd_update *update = task->update;
    int64_t count, first = shd_cut(update->count, SHD_SPAN, index, &count);
    if (update->codebooks[0]) {
        update_blocks(task, first, count);
        return;
    }
    float *states[2] = {update->states[0], update->states[1]};
    for (int i = 0; i < 2; i++)
        if (states[i]) states[i] += first;
    update_part(task, states, first, count);
}

void shd_optimizer_update(const sherd_optimizer *optimizer, shd_pool *pool, const shd_update *update) {
    if (update->count == 0) return;
    const shd_optim_kernels *kernels = shd_optim_kernels_best();
    update_task task = {.kernels = kernels,
                        .run = pick_update(kernels, optimizer),
                        .constants = shd_update_constants_make(optimizer, update),
                        .update = update};
    if (update->rounded) task.round = shd_optim_round(kernels, update->rounded_dtype);
    shd_pool_run(pool, update_span, &task, shd_div_ceil(update->count, SHD_SPAN));
}

typedef struct square_task {
    const shd_optim_kernels *kernels;
    const float *values;
    int64_t block_count;
    double *partials;
} square_task;

static void square_span(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const square_task *task = argument;
    int64_t count, first = shd_cut(task->block_count, SPAN_BLOCKS, index, &count);
    task->kernels->square_sums(task->values + first * SHD_OPTIM_BLOCK_COUNT, count, task->partials + first);
}

void shd_square_sum(shd_pool *pool, const float *values, int64_t count, double *partials, shd_exact_sum *sum) {
    assert(count % SHD_OPTIM_BLOCK_COUNT == 0);
    square_task task = {.kernels = shd_optim_kernels_best(),
                        .values = values,
                        .block_count = count / SHD_OPTIM_BLOCK_COUNT,
                        .partials = partials};
    if (task.block_count == 0) return;
    shd_pool_run(pool, square_span, &task, shd_div_ceil(task.block_count, SPAN_BLOCKS));
    for (int64_t block = 0; block < task.block_count; block++) shd_exact_sum_add(sum, partials[block]);
}
