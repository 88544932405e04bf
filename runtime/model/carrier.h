/* What a model's passes on a device take along: micro-batches there, losses back.
 *
 * A micro-batch is copied into pinned memory and from there, enqueued, into the device's; so the caller's arrays are
 * free at once. Losses come back into pinned memory when the stream is past the head: whoever adds them up does so
 * later. */
#ifndef SHD_MODEL_CARRIER_H
#define SHD_MODEL_CARRIER_H

#include "runtime/model/units.h"

typedef struct shd_carrier shd_carrier;

enum {
    SHD_CARRIER_LOADS = 2,   /* micro-batches on their way there; the next waits for the older one */
    SHD_CARRIER_UNLOADS = 17 /* micro-batches whose losses may be on their way back */
};

/* Lays a micro-batch's arrays out behind *end, in device memory. Pure. */
void shd_carrier_lay_out(const shd_model_config *config, shd_carrier_layout *layout, int64_t *end);

/* Owns: borrows `model`, whose place is set. Fails: MEMORY, DEVICE. */
sherd_status shd_carrier_create(const shd_model *model, shd_carrier **out);
/* Accepts NULL. The device has nothing of the model's under way. */
void shd_carrier_destroy(shd_carrier *carrier);

/* Enqueues the copy of the pass's micro-batch, and once in a life that of tables. Fails: as the place's `wait`. */
sherd_status shd_carrier_load(shd_carrier *carrier, const shd_pass *pass);
/* Points the pass's batch, and its rotary table, to where they are on the device. */
void shd_carrier_point(const shd_carrier *carrier, shd_pass *pass);
/* Enqueues the copy of what the head has written. */
void shd_carrier_unload(shd_carrier *carrier, const shd_pass *pass);
/* Where the last head's numbers will be, in pinned memory; `correct` NULL: there are none. Until UNLOADS - 1 more. */
void shd_carrier_last(const shd_carrier *carrier, const double **losses, const double **correct);

#endif
