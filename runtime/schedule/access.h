/* What each instruction touches, noted at the builder's open instruction. Pure descriptions: the engine moves the
 * bytes, the verifier follows them. */
#ifndef SHD_SCHEDULE_ACCESS_H
#define SHD_SCHEDULE_ACCESS_H

#include "runtime/schedule/builder.h"

/* The residency of `unit` in plan->gathers at `event`, and in plan->gradients; -1: none. */
int32_t shd_gather_find(const shd_plan *plan, int32_t unit, int32_t event);
int32_t shd_gradient_find(const shd_plan *plan, int32_t unit);

/* FORWARD, RECOMPUTE and BACKWARD; `op` says which of the event's it is. */
void shd_access_compute(shd_builder *builder, shd_op op, int32_t event);
/* Both groups of the unit, or only the trainable one. */
void shd_access_gather(shd_builder *builder, int32_t unit, int32_t residency, bool with_frozen);
/* WAIT promises that what was gathered can be read: it reads all of it. */
void shd_access_wait(shd_builder *builder, int32_t unit, int32_t residency);
void shd_access_release(shd_builder *builder, int32_t unit, int32_t residency);
void shd_access_round(shd_builder *builder, int32_t unit);
void shd_access_reduce(shd_builder *builder, int32_t unit, bool first_reduce);
void shd_access_reduce_replicas(shd_builder *builder, int32_t unit);
void shd_access_norm(shd_builder *builder, int32_t unit);
void shd_access_gather_gradient(shd_builder *builder, int32_t unit);
/* The steps that this rank works out: those of the whole tensors it owns. */
void shd_access_direct(shd_builder *builder, int32_t unit);
void shd_access_update(shd_builder *builder, int32_t unit);
/* What this rank stores: nothing, but on the ranks of replica 0, which have the whole state. */
void shd_access_save(shd_builder *builder, int32_t unit);

#endif
