#include "optim/schedule.h"

#include "runtime/base/arith.h"
#include "runtime/base/status.h"

#include <math.h>

static sherd_status check_warmup(const sherd_optimizer *optimizer) {
    if (optimizer->warmup_steps < 0)
        return shd_fail(SHERD_CONFIG, "optimizer.warmup_steps is %d; it must be 0 or more", optimizer->warmup_steps);
    if (optimizer->warmup_tokens < 0)
        return shd_fail(SHERD_CONFIG, "optimizer.warmup_tokens is %lld; it must be 0 or more",
                        (long long)optimizer->warmup_tokens);
    if (optimizer->warmup_tokens == 0) return SHERD_OK;
    if (optimizer->warmup_steps > 0)
        return shd_fail(SHERD_CONFIG,
                        "optimizer.warmup_tokens is %lld, and optimizer.warmup_steps is %d; give one of them",
                        (long long)optimizer->warmup_tokens, optimizer->warmup_steps);
    if (optimizer->step_tokens < 1)
        return shd_fail(SHERD_CONFIG, "optimizer.warmup_tokens is %lld, but the tokens of a step are %lld; tell them",
                        (long long)optimizer->warmup_tokens, (long long)optimizer->step_tokens);
    return SHERD_OK;
}

static sherd_status check_decay_steps(const sherd_optimizer *optimizer) {
    int64_t warmup = shd_schedule_warmup_steps(optimizer), steps = optimizer->decay_steps;
    if (steps < 0)
        return shd_fail(SHERD_CONFIG, "optimizer.decay_steps is %lld; it must be 1 or more, or 0 for a tenth of all",
                        (long long)steps);
    if (steps > 0 && steps > optimizer->total_steps - warmup)
        return shd_fail(SHERD_CONFIG,
                        "optimizer.decay_steps is %lld; of %lld steps, the first %lld of which warm up, it must be at "
                        "most %lld",
                        (long long)steps, (long long)optimizer->total_steps, (long long)warmup,
                        (long long)shd_max(optimizer->total_steps - warmup, 0));
    return SHERD_OK;
}

static bool has_end(sherd_schedule schedule) { return schedule != SHERD_CONSTANT && schedule != SHERD_INVERSE_SQRT; }

sherd_status shd_schedule_check(const sherd_optimizer *optimizer) {
    if ((int)optimizer->schedule < SHERD_CONSTANT || optimizer->schedule > SHERD_INVERSE_SQRT)
        return shd_fail(
            SHERD_CONFIG,
            "optimizer.schedule has the unknown value %d; it must be constant, linear, cosine, wsd or inverse_sqrt",
            (int)optimizer->schedule);
    SHD_TRY(check_warmup(optimizer));
    if (optimizer->schedule == SHERD_CONSTANT) return SHERD_OK;
    if (!(optimizer->min_lr >= 0))
        return shd_fail(SHERD_CONFIG, "optimizer.min_lr is %g; it must be 0 or more", optimizer->min_lr);
    if (!(optimizer->min_lr <= optimizer->lr))
        return shd_fail(SHERD_CONFIG,
                        "optimizer.min_lr is %g; it must not be above optimizer.lr, which is %g: the schedule ends "
                        "there",
                        optimizer->min_lr, optimizer->lr);
    if (has_end(optimizer->schedule) && optimizer->total_steps < 1)
        return shd_fail(SHERD_CONFIG,
                        "optimizer.total_steps (train.steps) is %lld; this schedule ends there: set it, to 1 or more",
                        (long long)optimizer->total_steps);
    return optimizer->schedule == SHERD_WSD ? check_decay_steps(optimizer) : SHERD_OK;
}

int64_t shd_schedule_warmup_steps(const sherd_optimizer *optimizer) {
    if (optimizer->warmup_tokens == 0) return optimizer->warmup_steps;
    return shd_div_ceil(optimizer->warmup_tokens, optimizer->step_tokens);
}

/* Where the learning rate begins to fall. */
static int64_t decay_start(const sherd_optimizer *optimizer, int64_t warmup) {
    if (optimizer->schedule != SHERD_WSD) return warmup;
    int64_t steps = optimizer->decay_steps > 0 ? optimizer->decay_steps : shd_max(optimizer->total_steps / 10, 1);
    return shd_max(optimizer->total_steps - steps, warmup);
}

double shd_schedule_lr(const sherd_optimizer *optimizer, int64_t step) {
    static const double pi = 3.14159265358979323846;
    double lr = optimizer->lr, min_lr = optimizer->min_lr;
    int64_t warmup = shd_schedule_warmup_steps(optimizer), total = optimizer->total_steps;
    if (step < warmup) return lr * (double)(step + 1) / (double)warmup;
    int64_t start = decay_start(optimizer, warmup);
    if (step < start) return lr;
    double done = step < total ? (double)(step - start) / (double)(total - start) : 1;
    switch (optimizer->schedule) {
    case SHERD_CONSTANT: return lr;
    case SHERD_WSD:
    case SHERD_LINEAR: return lr + (min_lr - lr) * done;
    case SHERD_COSINE: return min_lr + 0.5 * (lr - min_lr) * (1 + cos(pi * done));
    case SHERD_INVERSE_SQRT: return fmax(min_lr, lr * sqrt((double)shd_max(warmup, 1) / (double)(step + 1)));
    }
    return lr;
}
