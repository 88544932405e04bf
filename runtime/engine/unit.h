/* The states of a unit on one rank, and what occupies memory in each.
 *
 *   state      parameters on this rank                            reached by
 *   SHARDED    the own shard; what else there is may be stale     the start, RELEASE (stage 3), UPDATE (stages 1, 2)
 *   GATHERING  the own shard, and a full buffer being filled      GATHER
 *   GATHERED   the full buffer, readable                          WAIT
 *
 * At stage 0, and with one rank, a unit is GATHERED from the prologue on and never leaves that state. */
#ifndef SHD_ENGINE_UNIT_H
#define SHD_ENGINE_UNIT_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum shd_unit_state { SHD_UNIT_SHARDED, SHD_UNIT_GATHERING, SHD_UNIT_GATHERED } shd_unit_state;

/* One unit of a running engine. */
typedef struct shd_unit {
    shd_unit_state state;
    int32_t gathered_buffer;  /* the gather slot it is in; -1 while SHARDED, and where groups are kept in full */
    int32_t gradient_buffer;  /* its gradient slot; -1: nothing to train */
    int32_t exchanged_buffer; /* where peers read that gradient: its rounded slot, if there are such, else the same */
} shd_unit;

/* The only legal transitions. A persistent full buffer (stages 1, 2) may be gathered again without a release. */
static inline void shd_unit_move(shd_unit *unit, shd_unit_state next) {
    bool legal = (next == SHD_UNIT_GATHERING && unit->state != SHD_UNIT_GATHERING) ||
                 (next == SHD_UNIT_GATHERED && unit->state == SHD_UNIT_GATHERING) ||
                 (next == SHD_UNIT_SHARDED && unit->state == SHD_UNIT_GATHERED);
    assert(legal && "unit: illegal transition");
    (void)legal;
    unit->state = next;
    if (next == SHD_UNIT_SHARDED) unit->gathered_buffer = -1;
}

#endif
