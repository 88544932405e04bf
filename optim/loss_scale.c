#include "optim/loss_scale.h"

#include "runtime/base/status.h"

static const double GROWTH = 2, BACKOFF = 0.5;

/* Scales go into float32 when gradients are scaled. */
static bool is_scale(double value) { return value >= 0x1p-126 && value <= 0x1p126; }

sherd_status shd_loss_scale_check(const sherd_loss_scale *options) {
    if (!is_scale(options->minimum))
        return shd_fail(SHERD_CONFIG, "train.loss_scale.minimum is %g; it must be a positive number, finite in float32",
                        options->minimum);
    if (!is_scale(options->initial) || options->initial < options->minimum)
        return shd_fail(
            SHERD_CONFIG,
            "train.loss_scale.initial is %g; it must be at least train.loss_scale.minimum, which is %g, and "
            "finite in float32",
            options->initial, options->minimum);
    if (options->growth_interval < 1)
        return shd_fail(SHERD_CONFIG, "train.loss_scale.growth_interval is %d; it must be 1 or more",
                        options->growth_interval);
    if (options->hysteresis < 1)
        return shd_fail(SHERD_CONFIG, "train.loss_scale.hysteresis is %d; it must be 1 or more", options->hysteresis);
    return SHERD_OK;
}

shd_loss_scale shd_loss_scale_start(const sherd_loss_scale *options) {
    return (shd_loss_scale){.scale = options->initial, .hysteresis = options->hysteresis};
}

static void learn_good(const sherd_loss_scale *options, shd_loss_scale *state) {
    if (++state->good_steps < options->growth_interval) return;
    state->good_steps = 0;
    state->hysteresis = options->hysteresis;
    if (is_scale(state->scale * GROWTH)) state->scale *= GROWTH;
}

sherd_status shd_loss_scale_learn(const sherd_loss_scale *options, bool overflow, shd_loss_scale *state) {
    if (!overflow) {
        learn_good(options, state);
        return SHERD_OK;
    }
    bool halves = state->hysteresis <= 1;
    if (halves && state->scale <= options->minimum)
        return shd_fail(SHERD_NUMERIC,
                        "loss or gradients overflow fp16 at a loss scale of %g, the least that "
                        "train.loss_scale.minimum allows",
                        state->scale);
    state->good_steps = 0;
    if (!halves) {
        state->hysteresis--;
        return SHERD_OK;
    }
    double halved = state->scale * BACKOFF;
    state->scale = halved > options->minimum ? halved : options->minimum;
    return SHERD_OK;
}
