/* The verifier: first what lists and plans say, then a replay in which every access is checked. */
#include "runtime/schedule/verify.h"

#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/schedule/cells.h"
#include "runtime/schedule/checks.h"
#include "runtime/schedule/host.h"
#include "runtime/schedule/replay.h"
#include "runtime/schedule/segments.h"

/* --- peak ------------------------------------------------------------------------------------- */

/* A segment's tenancy, in instructions of rank 0's list; -1: it has not begun. */
typedef struct slot_tenancy {
    int32_t first, last;
} slot_tenancy;

static bool reads_too(const shd_program *program, const shd_instruction *instruction, const shd_access *write) {
    for (int32_t i = 0; i < instruction->accesses.count; i++) {
        const shd_access *access = &program->accesses[instruction->accesses.first + i];
        if (access->mode == SHD_ACCESS_READ && access->buffer_index == write->buffer_index &&
            access->first_byte <= write->first_byte &&
            access->first_byte + access->byte_count >= write->first_byte + write->byte_count)
            return true;
    }
    return false;
}

/* Adds the tenancy to `change` [instruction_count + 1], the bytes that each instruction begins or ends to occupy. */
static void settle(const slot_tenancy *tenancy, int64_t bytes, int64_t *change) {
    if (tenancy->first < 0) return;
    change[tenancy->first] += bytes;
    change[tenancy->last + 1] -= bytes;
}

/* The tenancies of one slot: a write that does not read begins one, the last access before the next one ends it. */
static void follow_slot(const shd_host *host, const shd_segments *segments, int32_t buffer, slot_tenancy *tenancies,
                        int64_t *change) {
    const shd_program *program = host->programs[0];
    const int64_t *cuts = segments->buffers[buffer].bytes;
    int32_t segment_count = shd_segments_count(segments, buffer);
    for (int32_t s = 0; s < segment_count; s++) tenancies[s] = (slot_tenancy){-1, -1};
    for (int32_t i = 0; i < program->instruction_count; i++) {
        const shd_instruction *instruction = &program->instructions[i];
        for (int32_t a = 0; a < instruction->accesses.count; a++) {
            const shd_access *access = &program->accesses[instruction->accesses.first + a];
            if (access->buffer_index != buffer || access->peer > 1) continue; /* a peer's is not rank 0's */
            bool begins = access->mode == SHD_ACCESS_WRITE && !reads_too(program, instruction, access);
            for (int32_t s = shd_segments_find(segments, buffer, access->first_byte);
                 cuts[s] < access->first_byte + access->byte_count; s++) {
                if (begins) {
                    settle(&tenancies[s], cuts[s + 1] - cuts[s], change);
                    tenancies[s].first = i;
                }
                tenancies[s].last = i;
            }
        }
    }
    for (int32_t s = 0; s < segment_count; s++) settle(&tenancies[s], cuts[s + 1] - cuts[s], change);
}

/* Everything but slots is in use all the time. */
static sherd_status find_peak(const shd_host *host, const shd_segments *segments, int64_t *out) {
    const shd_plan *plan = host->plans[0];
    int32_t most_segments = 0, instruction_count = host->programs[0]->instruction_count;
    for (int32_t b = 0; b < plan->buffer_count; b++)
        if (shd_segments_count(segments, b) > most_segments) most_segments = shd_segments_count(segments, b);
    slot_tenancy *tenancies = shd_alloc((size_t)most_segments, sizeof *tenancies);
    int64_t *change = shd_alloc((size_t)instruction_count + 1, sizeof *change);
    int64_t held_bytes = 0;
    for (int32_t b = 0; tenancies && change && b < plan->buffer_count; b++) {
        if (plan->buffers[b].transient)
            follow_slot(host, segments, b, tenancies, change);
        else
            held_bytes += plan->buffers[b].charged_bytes;
    }
    int64_t peak_bytes = held_bytes;
    for (int32_t i = 0; tenancies && change && i < instruction_count; i++) {
        held_bytes += change[i];
        if (held_bytes > peak_bytes) peak_bytes = held_bytes;
    }
    bool done = tenancies && change;
    shd_free(tenancies);
    shd_free(change);
    if (!done) return shd_fail(SHERD_MEMORY, "no memory to verify step programs");
    *out = peak_bytes;
    return SHERD_OK;
}

/* --- all -------------------------------------------------------------------------------------- */

static sherd_status verify_accesses(const shd_host *host, const shd_segments *segments) {
    shd_cells *cells;
    SHD_TRY(shd_cells_create(host, segments, &cells));
    sherd_status status = shd_replay(host, shd_cells_visit, cells);
    shd_cells_destroy(cells);
    return status;
}

static sherd_status verify_memory(const shd_host *host, int64_t *peak_bytes) {
    shd_segments segments;
    SHD_TRY(shd_segments_init(&segments, host));
    sherd_status status = verify_accesses(host, &segments);
    if (status == SHERD_OK) status = find_peak(host, &segments, peak_bytes);
    shd_segments_fini(&segments);
    return status;
}

sherd_status shd_program_verify(const shd_plan *const *plans, const shd_program *const *programs, int32_t rank_count,
                                int64_t *peak_bytes) {
    const shd_host host = {.plans = plans, .programs = programs, .rank_count = rank_count};
    SHD_TRY(shd_check_alike(&host));
    SHD_TRY(shd_check_tables(&host));
    SHD_TRY(shd_check_collectives(&host));
    SHD_TRY(shd_check_buffers(&host));
    int64_t peak = 0;
    SHD_TRY(verify_memory(&host, &peak));
    if (peak > plans[0]->allocated_bytes)
        return shd_fail(SHERD_INTERNAL, "rank 0 would use %lld bytes at once; its plan says %lld", (long long)peak,
                        (long long)plans[0]->allocated_bytes);
    if (peak_bytes) *peak_bytes = peak;
    return SHERD_OK;
}
