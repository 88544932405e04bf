/* Proves a host's step programs right before they run.
 *
 * All ranks' programs of one kind are taken together, run twice in a row (so that what one run leaves to the next is
 * seen), with vector clocks over (rank, queue). It checks that
 *   1. every read finds bytes that were written (or acquired) and not dropped since; work memory in the same run;
 *   2. of two accesses to the same bytes by different ranks or queues, one a write, one happens before the other;
 *   3. no two buffers overlap in their arena, all lie inside it, and at the same place on every rank;
 *   4. the bytes in use at any time stay within the plan's allocated_bytes, and *peak_bytes is their maximum;
 *   5. every rank issues the same collectives, in the same order, with the same bytes, and raises the same counters;
 *   6. no wait or await can block for ever: what they name is met by earlier instructions of every rank's list;
 *   7. nothing is under way when a program ends, so that counters then say what they will say when the next begins. */
#ifndef SHD_SCHEDULE_VERIFY_H
#define SHD_SCHEDULE_VERIFY_H

#include "runtime/schedule/program.h"

/* `plans` and `programs`: one per rank of the host, in rank order, all of one kind. A TRAIN or EVALUATE program is
 * checked after the effect of PROLOGUE; EVALUATE also with the updates of a step under way, for which it must await
 * UPDATED itself. On success *peak_bytes (may be NULL) is the largest number of charged bytes in use on rank 0, in the
 * order of its list: all buffers but slots, and of slots the bytes between a tenant's first write and its last access.
 * Fails: INTERNAL, with the instruction's index, op, unit and rank, the buffer, and what is missing, in the cause;
 * MEMORY. */
sherd_status shd_program_verify(const shd_plan *const *plans, const shd_program *const *programs, int32_t rank_count,
                                int64_t *peak_bytes);

#endif
