/* The learning rate as a function of the step alone, so that a resumed run has the one it would have had. The formulas
 * stand at sherd_schedule. */
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
