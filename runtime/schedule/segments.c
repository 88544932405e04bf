/* See segments.h. */
#include "runtime/schedule/segments.h"

#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <string.h>

/* The first cut that is not below `byte`. */
static int32_t lower_cut(const shd_cuts *cuts, int64_t byte) {
    int32_t low = 0, high = cuts->count;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (cuts->bytes[middle] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int32_t shd_segments_find(const shd_segments *segments, int32_t buffer, int64_t byte) {
    return lower_cut(&segments->buffers[buffer], byte);
}

static bool cut(shd_cuts *cuts, int64_t byte) {
    int32_t at = lower_cut(cuts, byte);
    if (at < cuts->count && cuts->bytes[at] == byte) return true;
    if (cuts->count == cuts->capacity) {
        int32_t capacity = cuts->capacity ? 2 * cuts->capacity : 8;
        int64_t *bytes = shd_realloc(cuts->bytes, (size_t)capacity * sizeof *bytes);
        if (!bytes) return false;
        cuts->bytes = bytes;
        cuts->capacity = capacity;
    }
    memmove(&cuts->bytes[at + 1], &cuts->bytes[at], (size_t)(cuts->count - at) * sizeof *cuts->bytes);
    cuts->bytes[at] = byte;
    cuts->count++;
    return true;
}

static bool cut_access(shd_segments *segments, const shd_access *access, const shd_mesh *mesh) {
    shd_cuts *cuts = &segments->buffers[access->buffer_index];
    int32_t ranges = access->stride_bytes > 0 ? shd_mesh_count(mesh, access->scope) : 1;
    for (int32_t i = 0; i < ranges; i++) {
        shd_part range = shd_access_range(access, i);
        if (range.count > 0 && (!cut(cuts, range.first) || !cut(cuts, range.first + range.count))) return false;
    }
    return true;
}

/* Owners' shards matter where parameters are kept in full, whoever touches them. */
static bool cut_shards(shd_segments *segments, const shd_plan *plan) {
    for (int32_t g = 0; g < plan->group_count; g++) {
        const shd_group *group = &plan->groups[g];
        int64_t shard_bytes = group->shard_count * shd_dtype_bytes(plan->policy.parameter_dtype);
        for (int32_t r = 0; group->parameters_buffer >= 0 && r <= shd_policy_split(&plan->policy); r++)
            if (!cut(&segments->buffers[group->parameters_buffer], r * shard_bytes)) return false;
    }
    return true;
}

static bool cut_all(shd_segments *segments, const shd_host *host) {
    if (!segments->buffers) return false;
    for (int32_t b = 0; b < segments->buffer_count; b++)
        if (!cut(&segments->buffers[b], 0) || !cut(&segments->buffers[b], host->plans[0]->buffers[b].bytes))
            return false;
    for (int32_t r = 0; r < host->rank_count; r++) {
        shd_mesh mesh = shd_policy_mesh(&host->plans[r]->policy);
        for (int32_t i = 0; i < host->programs[r]->access_count; i++)
            if (!cut_access(segments, &host->programs[r]->accesses[i], &mesh)) return false;
    }
    return cut_shards(segments, host->plans[0]);
}

sherd_status shd_segments_init(shd_segments *segments, const shd_host *host) {
    int32_t count = host->plans[0]->buffer_count;
    *segments = (shd_segments){.buffer_count = count, .buffers = shd_alloc((size_t)count, sizeof *segments->buffers)};
    if (cut_all(segments, host)) return SHERD_OK;
    shd_segments_fini(segments);
    return shd_fail(SHERD_MEMORY, "no memory to verify step programs");
}

void shd_segments_fini(shd_segments *segments) {
    for (int32_t b = 0; segments->buffers && b < segments->buffer_count; b++) shd_free(segments->buffers[b].bytes);
    shd_free(segments->buffers);
    *segments = (shd_segments){0};
}
