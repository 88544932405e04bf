/* Copies: of all ranks' shards into one buffer, and of one range. */
#include "runtime/comm/wide.h"

#include "runtime/base/arith.h"

#include <string.h>

enum { TASK_BYTES = 1 << 18 }; /* what one task copies */

typedef struct copying {
    unsigned char *full;
    const unsigned char *const *sources;
    int32_t source_count, own;
    int64_t bytes, tasks_per_source;
} copying;

static void copy_task(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const copying *work = argument;
    int32_t source = (int32_t)((work->own + 1 + index / work->tasks_per_source) % work->source_count);
    int64_t at = index % work->tasks_per_source * TASK_BYTES;
    unsigned char *place = work->full + source * work->bytes;
    if (place == work->sources[source]) return;
    memcpy(place + at, work->sources[source] + at, (size_t)shd_min(TASK_BYTES, work->bytes - at));
}

void shd_wide_gather(shd_pool *pool, unsigned char *full, const unsigned char *const *sources, int32_t source_count,
                     int32_t own, int64_t bytes) {
    copying work = {.full = full,
                    .sources = sources,
                    .source_count = source_count,
                    .own = own,
                    .bytes = bytes,
                    .tasks_per_source = shd_div_ceil(bytes, TASK_BYTES)};
    int64_t task_count = work.tasks_per_source * source_count;
    if (pool && task_count > source_count) {
        shd_pool_run(pool, copy_task, &work, task_count);
    } else {
        for (int64_t i = 0; i < task_count; i++) copy_task(&work, i, 0);
    }
}

void shd_wide_copy(shd_pool *pool, unsigned char *to, const unsigned char *from, int64_t bytes) {
    /* A gather from one other rank. */
    shd_wide_gather(pool, to, &from, 1, 0, bytes);
}
