/* What a host's memory holds while its programs are replayed, segment by segment, and whether every access may be
 * there.
 *
 * EXPORTED and PRIVATE buffers exist once per rank, HOST buffers once per shard group; of those each rank has a view
 * besides: what it may read. An owner may always read its own shard, other ranks' shards only from ACQUIRE to DROP and
 * until the owner writes again. What a run leaves in buffers other than parameters and optimizer state is void in the
 * next one. Three things that have no buffer are followed like memory: the target count (COUNT writes it, BACKWARD
 * reads it), each unit's norm (NORM; VERDICT), and the verdict (VERDICT; UPDATE that follows it). */
#ifndef SHD_SCHEDULE_CELLS_H
#define SHD_SCHEDULE_CELLS_H

#include "runtime/schedule/replay.h"
#include "runtime/schedule/segments.h"

typedef struct shd_cells shd_cells;

/* Memory as the first run finds it. Owns: borrows host and segments for its life. Fails: MEMORY. */
sherd_status shd_cells_create(const shd_host *host, const shd_segments *segments, shd_cells **out);
/* Accepts NULL. */
void shd_cells_destroy(shd_cells *cells);

/* Checks what the instruction of `moment` touches against all before, and notes it. A shd_visit_fn; `cells` is a
 * shd_cells.
 * Fails: INTERNAL, naming both sides. */
sherd_status shd_cells_visit(void *cells, const shd_moment *moment);

#endif
