/* The dynamic loss scale of fp16 training: pure, the same on every rank that sees the same overflows. What it does, and
 * sources, stand at sherd_loss_scale. */
#ifndef SHD_OPTIM_LOSS_SCALE_H
#define SHD_OPTIM_LOSS_SCALE_H

#include <sherd/options.h>
#include <stdbool.h>
#include <stdint.h>

/* All that decides the scales to come; a checkpoint keeps it. */
typedef struct shd_loss_scale {
    double scale;       /* of the next step */
    int32_t good_steps; /* in a row, since the last overflow or growth: below growth_interval */
    int32_t hysteresis; /* overflows left until one halves the scale, itself among them: 1 to the option's */
} shd_loss_scale;

/* Checks the options. Fails: CONFIG, naming the key as a job file does. */
sherd_status shd_loss_scale_check(const sherd_loss_scale *options);

/* Where a run starts. */
shd_loss_scale shd_loss_scale_start(const sherd_loss_scale *options);

/* Learns how a step went. Fails: NUMERIC when it overflowed at the minimum, where nothing is left to halve; then the
 * state is as before. */
sherd_status shd_loss_scale_learn(const sherd_loss_scale *options, bool overflow, shd_loss_scale *state);

#endif
