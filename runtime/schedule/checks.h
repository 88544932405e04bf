/* What can be checked of a host's plans and programs without running them. All fail with INTERNAL, or MEMORY. */
#ifndef SHD_SCHEDULE_CHECKS_H
#define SHD_SCHEDULE_CHECKS_H

#include "runtime/schedule/host.h"

/* One plan and program a rank, of one kind and one shape. The checks below, and everything after them, rely on it. */
sherd_status shd_check_alike(const shd_host *host);
/* Every index, range and table of the programs is sound; waits name earlier instructions; `raised` counts the
 * signals; the first REDUCE of a unit, and only that, sets its accumulator. */
sherd_status shd_check_tables(const shd_host *host);
/* Every rank issues the same collectives in the same order with the same bytes. */
sherd_status shd_check_collectives(const shd_host *host);
/* Buffers lie inside their arenas, do not overlap, are at the same place on every rank where others may look, and cost
 * what the plan says. */
sherd_status shd_check_buffers(const shd_host *host);

#endif
