/* The learning rate as a function of the step alone, so that a resumed run has the one it would have had; a warm-up in
 * tokens is turned into steps for that. The formulas stand at sherd_schedule. Sources: cosine, Loshchilov, Hutter:
 * "SGDR", ICLR 2017; wsd, Hu et al.: "MiniCPM", 2024, with a linear decay; inverse_sqrt, Vaswani et al.: "Attention is
 * all you need", 2017. */
#ifndef SHD_OPTIM_SCHEDULE_H
#define SHD_OPTIM_SCHEDULE_H

#include <sherd/options.h>

/* Checks what the chosen schedule uses. Fails: CONFIG, naming the field as the job file does. */
sherd_status shd_schedule_check(const sherd_optimizer *optimizer);

/* Steps of the warm-up: as told, or as many as see warmup_tokens. */
int64_t shd_schedule_warmup_steps(const sherd_optimizer *optimizer);

/* The learning rate of step `step`, from 0. From total_steps on it stays at the schedule's end, if it has one. */
double shd_schedule_lr(const sherd_optimizer *optimizer, int64_t step);

#endif
