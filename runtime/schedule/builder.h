/* Writes a program instruction by instruction, and leaves out every wait and await that is implied already.
 *
 * What is implied follows from the list alone, because all ranks run the same one: for each instruction the builder
 * knows, per queue, the last instruction that is done when it ends, on its own rank and on every rank of each scope. The
 * verifier
 * does not trust this: it follows the clocks of all ranks. Calls: open, then wait, await, signal, access in any number,
 * then close. Out of memory is remembered and told by finish. */
#ifndef SHD_SCHEDULE_BUILDER_H
#define SHD_SCHEDULE_BUILDER_H

#include "runtime/schedule/program.h"

/* Per scope and queue the last instruction known to be done on all its ranks, -1 for none. */
enum { SHD_KNOWN_SCOPES = SHD_SCOPE_ALL + 1 };
typedef struct shd_known {
    int32_t done[SHD_KNOWN_SCOPES][SHD_QUEUES];
} shd_known;

typedef struct shd_builder {
    const shd_plan *plan;
    shd_program *program;
    shd_known *known; /* by instruction, when it ends */
    shd_known now;    /* when the open instruction starts */
    int32_t last[SHD_QUEUES];
    int32_t instruction_capacity, known_capacity, wait_capacity, await_capacity, signal_capacity, access_capacity;
    bool failed;
} shd_builder;

void shd_builder_init(shd_builder *builder, const shd_plan *plan, shd_program_kind kind, int32_t micro_steps,
                      bool late_updates);

void shd_builder_open(shd_builder *builder, shd_instruction instruction);
/* The open instruction needs instruction `index` of this rank to be done. */
void shd_builder_wait(shd_builder *builder, int32_t index);
/* The open instruction needs instruction `index` of every rank in the counter's scope to be done; it raises `counter`
 * to `target`. -1: one of an earlier run. */
void shd_builder_await(shd_builder *builder, shd_counter counter, int32_t unit, int32_t target, int32_t index);
void shd_builder_signal(shd_builder *builder, shd_counter counter, int32_t unit);
/* Nothing is recorded for buffer -1 or no bytes. */
void shd_builder_access(shd_builder *builder, shd_access access);
/* Returns the instruction's index, -1 when memory is out. */
int32_t shd_builder_close(shd_builder *builder);

/* Ends the builder. Fails: MEMORY. Destroy *out with shd_program_destroy. */
sherd_status shd_builder_finish(shd_builder *builder, shd_program **out);

#endif
