/* Replays the programs of a host, all ranks together and twice in a row, with vector clocks.
 *
 * Each rank takes its instructions in the order of its list, as soon as their awaits are met; so when the replay ends,
 * every wait and await names something earlier, and no executor that keeps the order of each queue can block for ever.
 * The clocks say more than the order that the replay happens to take: what they leave unordered could happen in any
 * order. */
#ifndef SHD_SCHEDULE_REPLAY_H
#define SHD_SCHEDULE_REPLAY_H

#include "runtime/schedule/host.h"

enum { SHD_REPLAY_RUNS = 2 };

/* An instruction that starts. */
typedef struct shd_moment {
    int32_t run, rank;
    int32_t index;        /* in the rank's list; -1 for a lingering UPDATE of run -1, see host.h */
    int32_t unit_index;   /* -1: none */
    int32_t actor, time;  /* it is instruction `time` of this actor */
    const int32_t *clock; /* by actor: so many of its instructions are done, this one counted among them */
} shd_moment;

typedef sherd_status (*shd_visit_fn)(void *user, const shd_moment *moment);

/* Calls `visit` for every instruction of every run; its failure ends the replay.
 * Fails: INTERNAL, naming what blocks for ever, or what is still under way when a program ends; MEMORY; as `visit`
 * does. */
sherd_status shd_replay(const shd_host *host, shd_visit_fn visit, void *user);

#endif
