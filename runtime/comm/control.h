/* The control block: every flag that ranks of one host pass to each other, in one piece of shared memory.
 *
 * Each part has one writer, its rank, but for the doorbells and the first failure. A rank's parts lie on cache lines of
 * their own. */
#ifndef SHD_COMM_CONTROL_H
#define SHD_COMM_CONTROL_H

#include "runtime/comm/backend.h"

/* A rank's view of the block. */
typedef struct shd_control {
    int32_t rank, world_size, unit_count;
    struct shd_control_head *head;
    struct shd_control_rank *ranks; /* [world_size] */
    unsigned char *counters;        /* [world_size], shd_control_stride apart */
    int64_t announced;
} shd_control;

/* Bytes of the block. All zero is its start state. */
int64_t shd_control_bytes(int32_t world_size, int32_t unit_count);
/* Fills `control` for a block mapped at `base`. */
void shd_control_init(shd_control *control, void *base, int32_t rank, int32_t world_size, int32_t unit_count);

/* As the slots of shd_backend with these names. */
void shd_control_signal(shd_control *control, int32_t kind, int32_t unit);
int64_t shd_control_counter(const shd_control *control, int32_t rank, int32_t kind, int32_t unit);
void shd_control_post(shd_control *control, int64_t number, const void *mine, int64_t bytes);
int64_t shd_control_posted(const shd_control *control, int32_t rank);
const void *shd_control_mail(shd_control *control, int32_t rank, int64_t number, int64_t *bytes);
void shd_control_announce(shd_control *control, const shd_announcement *announcement);
int64_t shd_control_announced(const shd_control *control, int32_t rank);
bool shd_control_announcement(const shd_control *control, int32_t rank, int64_t number, shd_announcement *out);
void shd_control_fail(shd_control *control, const shd_comm_failure *failure);
bool shd_control_failed(const shd_control *control, shd_comm_failure *out);
void shd_control_arm(shd_control *control);
void shd_control_doze(shd_control *control, double milliseconds);

/* This rank closes its comm; true of `rank` once it has. */
void shd_control_leave(shd_control *control);
bool shd_control_left(const shd_control *control, int32_t rank);

#endif
