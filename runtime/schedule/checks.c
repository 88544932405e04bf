/* See checks.h. */
#include "runtime/schedule/checks.h"

#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <inttypes.h>

/* --- alike ------------------------------------------------------------------------------------ */

sherd_status shd_check_alike(const shd_host *host) {
    if (host->rank_count < 1) return shd_fail(SHERD_INTERNAL, "no programs to verify");
    const shd_plan *plan = host->plans[0];
    const shd_program *program = host->programs[0];
    for (int32_t r = 0; r < host->rank_count; r++) {
        const shd_plan *other = host->plans[r];
        const shd_program *others = host->programs[r];
        if (other->policy.rank != r || other->policy.world_size != host->rank_count ||
            other->policy.replicas != plan->policy.replicas)
            return shd_fail(SHERD_INTERNAL,
                            "plan %" PRId32 " of %" PRId32 " is for rank %" PRId32 " of %" PRId32 " in %" PRId32
                            " replicas; rank 0's has %" PRId32,
                            r, host->rank_count, other->policy.rank, other->policy.world_size, other->policy.replicas,
                            plan->policy.replicas);
        if (other->unit_count != plan->unit_count || other->group_count != plan->group_count ||
            other->buffer_count != plan->buffer_count || other->gradient_count != plan->gradient_count)
            return shd_fail(SHERD_INTERNAL, "the plan of rank %" PRId32 " has another shape than rank 0's", r);
        if (others->kind != program->kind || others->micro_steps != program->micro_steps ||
            others->late_updates != program->late_updates)
            return shd_fail(SHERD_INTERNAL, "the program of rank %" PRId32 " is of another kind than rank 0's", r);
    }
    return SHERD_OK;
}

/* --- tables ----------------------------------------------------------------------------------- */

static bool run_fits(shd_run run, int32_t count) {
    return run.first >= 0 && run.count >= 0 && run.first <= count && run.count <= count - run.first;
}

static bool counter_fits(const shd_plan *plan, shd_counter counter, int32_t unit) {
    return counter >= 0 && counter < SHD_COUNTERS && unit >= 0 && unit < plan->unit_count;
}

static bool needs_unit(shd_op op) { return op != SHD_OP_COUNT && op != SHD_OP_VERDICT && op != SHD_OP_COMMIT; }

static sherd_status check_access(const shd_host *host, int32_t rank, int32_t index, const shd_access *access) {
    const shd_plan *plan = host->plans[rank];
    if (access->buffer_index < 0 || access->buffer_index >= plan->buffer_count)
        return shd_fail(SHERD_INTERNAL, "%s touches buffer %" PRId32 "; the plan has %" PRId32,
                        shd_name_instruction(host, rank, index).text, access->buffer_index, plan->buffer_count);
    const shd_buffer *buffer = &plan->buffers[access->buffer_index];
    shd_mesh mesh = shd_policy_mesh(&plan->policy);
    int32_t last_rank = shd_mesh_count(&mesh, access->scope) - 1;
    int64_t last = access->end_byte > 0 ? 0 : last_rank * access->stride_bytes;
    if (access->peer < 0 || access->peer > last_rank + 1)
        return shd_fail(SHERD_INTERNAL, "%s touches %s of peer %" PRId32 "; there are %" PRId32,
                        shd_name_instruction(host, rank, index).text, shd_name_buffer(plan, access->buffer_index).text,
                        access->peer - 1, last_rank + 1);
    if (access->first_byte < 0 || access->byte_count < 1 || access->stride_bytes < 0 || access->end_byte < 0 ||
        access->end_byte > buffer->bytes || access->byte_count > buffer->bytes ||
        access->first_byte > buffer->bytes - access->byte_count - last)
        return shd_fail(SHERD_INTERNAL, "%s touches bytes %" PRId64 " to %" PRId64 " of %s, which has %" PRId64,
                        shd_name_instruction(host, rank, index).text, access->first_byte,
                        access->first_byte + access->byte_count + last,
                        shd_name_buffer(plan, access->buffer_index).text, buffer->bytes);
    if (access->scope != SHD_SCOPE_OWN && (buffer->place != SHD_PLACE_EXPORTED || access->mode != SHD_ACCESS_READ))
        return shd_fail(SHERD_INTERNAL, "%s touches other ranks' %s, which is not there for others to %s",
                        shd_name_instruction(host, rank, index).text, shd_name_buffer(plan, access->buffer_index).text,
                        access->mode == SHD_ACCESS_READ ? "read" : "change");
    return SHERD_OK;
}

static sherd_status check_instruction(const shd_host *host, int32_t rank, int32_t index) {
    const shd_program *program = host->programs[rank];
    const shd_plan *plan = host->plans[rank];
    const shd_instruction *instruction = &program->instructions[index];
    bool sound =
        instruction->op >= 0 && instruction->op < SHD_OPS && instruction->queue >= 0 &&
        instruction->queue < SHD_QUEUES && instruction->unit_index < plan->unit_count &&
        (instruction->unit_index >= 0 || !needs_unit(instruction->op)) &&
        run_fits(instruction->waits, program->wait_count) && run_fits(instruction->awaits, program->await_count) &&
        run_fits(instruction->signals, program->signal_count) && run_fits(instruction->accesses, program->access_count);
    for (int32_t i = 0; sound && i < instruction->awaits.count; i++) {
        const shd_await *await = &program->awaits[instruction->awaits.first + i];
        sound = counter_fits(plan, await->counter, await->unit_index);
    }
    for (int32_t i = 0; sound && i < instruction->signals.count; i++) {
        const shd_signal *signal = &program->signals[instruction->signals.first + i];
        sound = counter_fits(plan, signal->counter, signal->unit_index);
    }
    if (instruction->op == SHD_OP_SAVE && (instruction->waits.count || instruction->awaits.count))
        return shd_fail(SHERD_INTERNAL, "%s waits for something, but reads from where it stands on",
                        shd_name_instruction(host, rank, index).text);
    if (!sound) return shd_fail(SHERD_INTERNAL, "%s is damaged", shd_name_instruction(host, rank, index).text);
    for (int32_t i = 0; i < instruction->waits.count; i++) {
        int32_t wait = program->waits[instruction->waits.first + i];
        if (wait < 0 || wait >= index)
            return shd_fail(SHERD_INTERNAL,
                            "%s blocks for ever: it waits for instruction %" PRId32 ", which is not before it",
                            shd_name_instruction(host, rank, index).text, wait);
    }
    for (int32_t i = 0; i < instruction->accesses.count; i++)
        SHD_TRY(check_access(host, rank, index, &program->accesses[instruction->accesses.first + i]));
    return SHERD_OK;
}

/* What a rank's list adds up to. */
typedef struct list_tally {
    int32_t *raises;  /* [SHD_COUNTERS][units] */
    int32_t *reduces; /* [units]: REDUCEs so far */
} list_tally;

/* The first REDUCE of a unit sets its accumulator, the others add. */
static sherd_status count_instruction(const shd_host *host, int32_t rank, int32_t index, list_tally *tally) {
    const shd_program *program = host->programs[rank];
    const shd_instruction *instruction = &program->instructions[index];
    for (int32_t i = 0; i < instruction->signals.count; i++) {
        const shd_signal *signal = &program->signals[instruction->signals.first + i];
        tally->raises[(int32_t)signal->counter * host->plans[rank]->unit_count + signal->unit_index]++;
    }
    if (instruction->op != SHD_OP_REDUCE) return SHERD_OK;
    bool first = tally->reduces[instruction->unit_index]++ == 0;
    if (first != instruction->first_reduce)
        return shd_fail(SHERD_INTERNAL, "%s %s", shd_name_instruction(host, rank, index).text,
                        first ? "adds to an accumulator that no REDUCE before it has set"
                              : "sets an accumulator anew that holds earlier micro-steps");
    return SHERD_OK;
}

static sherd_status check_rank(const shd_host *host, int32_t rank, list_tally *tally) {
    const shd_program *program = host->programs[rank];
    for (int32_t i = 0; i < program->instruction_count; i++) {
        SHD_TRY(check_instruction(host, rank, i));
        SHD_TRY(count_instruction(host, rank, i, tally));
    }
    int32_t units = host->plans[rank]->unit_count;
    for (int32_t c = 0; c < SHD_COUNTERS; c++)
        for (int32_t u = 0; u < units; u++) {
            int32_t count = tally->raises[c * units + u];
            int32_t said = program->raised[c * units + u], others = host->programs[0]->raised[c * units + u];
            if (count != said || count != others)
                return shd_fail(SHERD_INTERNAL,
                                "rank %" PRId32 " raises %s %s %" PRId32 " times in a run; its table says %" PRId32
                                ", rank 0's %" PRId32,
                                rank, shd_counter_text((shd_counter)c), host->plans[rank]->unit_names[u], count, said,
                                others);
        }
    return SHERD_OK;
}

sherd_status shd_check_tables(const shd_host *host) {
    sherd_status status = SHERD_OK;
    for (int32_t r = 0; status == SHERD_OK && r < host->rank_count; r++) {
        size_t units = (size_t)host->plans[r]->unit_count;
        list_tally tally = {.raises = shd_alloc(SHD_COUNTERS * units, sizeof *tally.raises),
                            .reduces = shd_alloc(units, sizeof *tally.reduces)};
        status = tally.raises && tally.reduces ? check_rank(host, r, &tally)
                                               : shd_fail(SHERD_MEMORY, "no memory to verify step programs");
        shd_free(tally.raises);
        shd_free(tally.reduces);
    }
    return status;
}

/* --- collectives ------------------------------------------------------------------------------ */

static bool is_collective(shd_op op) {
    return op == SHD_OP_COUNT || op == SHD_OP_GATHER || op == SHD_OP_REDUCE || op == SHD_OP_REDUCE_REPLICAS ||
           op == SHD_OP_GATHER_GRADIENT || op == SHD_OP_VERDICT || op == SHD_OP_COMMIT;
}

/* The first collective at or after instruction `from`; the list's length when there is none. */
static int32_t next_collective(const shd_program *program, int32_t from) {
    while (from < program->instruction_count && !is_collective(program->instructions[from].op)) from++;
    return from;
}

static sherd_status compare_collectives(const shd_host *host, int32_t rank) {
    const shd_program *mine = host->programs[0], *theirs = host->programs[rank];
    int32_t i = -1, j = -1;
    for (int32_t nth = 0;; nth++) {
        i = next_collective(mine, i + 1);
        j = next_collective(theirs, j + 1);
        bool ends = i == mine->instruction_count, others_end = j == theirs->instruction_count;
        if (ends && others_end) return SHERD_OK;
        if (ends || others_end)
            return shd_fail(SHERD_INTERNAL, "collective %" PRId32 ": %s has no counterpart on rank %" PRId32, nth,
                            ends ? shd_name_instruction(host, rank, j).text : shd_name_instruction(host, 0, i).text,
                            ends ? 0 : rank);
        const shd_instruction *a = &mine->instructions[i], *b = &theirs->instructions[j];
        if (a->op != b->op || a->unit_index != b->unit_index || a->queue != b->queue || a->bytes != b->bytes)
            return shd_fail(SHERD_INTERNAL,
                            "collective %" PRId32 " differs: %s in the %s queue with %" PRId64
                            " bytes, %s in the %s queue with %" PRId64 " bytes",
                            nth, shd_name_instruction(host, 0, i).text, shd_queue_text(a->queue), a->bytes,
                            shd_name_instruction(host, rank, j).text, shd_queue_text(b->queue), b->bytes);
    }
}

sherd_status shd_check_collectives(const shd_host *host) {
    for (int32_t r = 1; r < host->rank_count; r++) SHD_TRY(compare_collectives(host, r));
    return SHERD_OK;
}

/* --- buffers ---------------------------------------------------------------------------------- */

static sherd_status check_place(const shd_host *host, int32_t rank, int32_t index) {
    const shd_plan *plan = host->plans[rank];
    const shd_buffer *buffer = &plan->buffers[index], *first = &host->plans[0]->buffers[index];
    int64_t arena_bytes = plan->arena_bytes[buffer->place];
    if (buffer->offset_bytes < 0 || buffer->bytes > arena_bytes || buffer->offset_bytes > arena_bytes - buffer->bytes)
        return shd_fail(SHERD_INTERNAL,
                        "%s of rank %" PRId32 ", bytes %" PRId64 " to %" PRId64
                        " of its arena, does not fit: the arena has %" PRId64,
                        shd_name_buffer(plan, index).text, rank, buffer->offset_bytes,
                        buffer->offset_bytes + buffer->bytes, arena_bytes);
    if (buffer->kind != first->kind || buffer->place != first->place || buffer->bytes != first->bytes ||
        (buffer->place != SHD_PLACE_PRIVATE && buffer->offset_bytes != first->offset_bytes))
        return shd_fail(SHERD_INTERNAL, "%s lies elsewhere on rank %" PRId32 " than on rank 0",
                        shd_name_buffer(plan, index).text, rank);
    for (int32_t j = 0; j < index; j++) {
        const shd_buffer *other = &plan->buffers[j];
        if (other->place == buffer->place && other->offset_bytes < buffer->offset_bytes + buffer->bytes &&
            buffer->offset_bytes < other->offset_bytes + other->bytes)
            return shd_fail(SHERD_INTERNAL, "%s and %s of rank %" PRId32 " overlap in their arena",
                            shd_name_buffer(plan, j).text, shd_name_buffer(plan, index).text, rank);
    }
    return SHERD_OK;
}

sherd_status shd_check_buffers(const shd_host *host) {
    for (int32_t r = 0; r < host->rank_count; r++) {
        const shd_plan *plan = host->plans[r];
        int64_t charged_bytes = 0;
        for (int32_t b = 0; b < plan->buffer_count; b++) {
            SHD_TRY(check_place(host, r, b));
            charged_bytes += plan->buffers[b].charged_bytes;
        }
        if (charged_bytes > plan->allocated_bytes)
            return shd_fail(SHERD_INTERNAL,
                            "the buffers of rank %" PRId32 " take %" PRId64 " bytes; its plan says %" PRId64, r,
                            charged_bytes, plan->allocated_bytes);
    }
    return SHERD_OK;
}
