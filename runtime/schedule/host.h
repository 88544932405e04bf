/* The programs of a host under verification, and how messages name their parts. */
#ifndef SHD_SCHEDULE_HOST_H
#define SHD_SCHEDULE_HOST_H

#include "runtime/schedule/program.h"

typedef struct shd_host {
    const shd_plan *const *plans;       /* [rank_count] */
    const shd_program *const *programs; /* [rank_count] */
    int32_t rank_count;
} shd_host;

/* An actor is one queue of one rank: actor = rank·SHD_QUEUES + queue. Its instructions are numbered from 1, over all
 * runs. */
static inline int32_t shd_actor(int32_t rank, shd_queue_id queue) { return rank * SHD_QUEUES + (int32_t)queue; }

/* What an evaluation finds under way: one UPDATE of each trained unit, in rising order, that nobody has waited for.
 * They are the first instructions of the COMPUTE actors; 0 for other kinds. */
int32_t shd_host_lingering(const shd_host *host);
/* The unit of the i-th of them. */
int32_t shd_host_lingering_unit(const shd_host *host, int32_t i);

/* A text for one message; use it within the full expression that makes it. */
typedef struct shd_name {
    char text[192];
} shd_name;
/* "instruction 12 (FORWARD h.0, micro-step 0) of rank 1" */
shd_name shd_name_instruction(const shd_host *host, int32_t rank, int32_t index);
/* The same, by actor and number. */
shd_name shd_name_moment(const shd_host *host, int32_t actor, int32_t time);
/* "parameters of h.0 (trainable)", "gather_slot 1", "activations of h.0", "scratch" */
shd_name shd_name_buffer(const shd_plan *plan, int32_t buffer_index);

#endif
