/* The rank-ordered sum. A chunk of the accumulator stays in the first-level cache while the sources pass over it, up to
 * four at a time; the order of additions is the order of the sources, whatever the grouping. Only additions happen,
 * element by element, so vector width cannot change a bit. */
#include "runtime/comm/wide.h"

#include "runtime/base/arith.h"
#include "runtime/comm/comm.h"

#include <assert.h>

enum {
    TASK_ELEMENTS = 1 << 16, /* what one task adds: 256 KB of each source */
    CHUNK_ELEMENTS = 1 << 11 /* what stays cached while sources pass over it */
};

/* The body of every variant; inlined into functions compiled for the machine at hand. */
static inline __attribute__((always_inline)) void add_sources(float *restrict sum, const float *const *sources,
                                                              int32_t source_count, int64_t count) {
    int32_t s = 0;
    for (; s + 4 <= source_count; s += 4) {
        const float *restrict a = sources[s], *restrict b = sources[s + 1];
        const float *restrict c = sources[s + 2], *restrict d = sources[s + 3];
        for (int64_t i = 0; i < count; i++) sum[i] = (((sum[i] + a[i]) + b[i]) + c[i]) + d[i];
    }
    if (s + 2 <= source_count) {
        const float *restrict a = sources[s], *restrict b = sources[s + 1];
        for (int64_t i = 0; i < count; i++) sum[i] = (sum[i] + a[i]) + b[i];
        s += 2;
    }
    if (s < source_count) {
        const float *restrict a = sources[s];
        for (int64_t i = 0; i < count; i++) sum[i] += a[i];
    }
}

/* Sets the sum from the first sources instead of adding to it; returns how many it took. */
static inline __attribute__((always_inline)) int32_t set_sources(float *restrict sum, const float *const *sources,
                                                                 int32_t source_count, int64_t count) {
    const float *restrict a = sources[0];
    if (source_count == 1) {
        for (int64_t i = 0; i < count; i++) sum[i] = a[i];
        return 1;
    }
    const float *restrict b = sources[1];
    if (source_count < 4) {
        for (int64_t i = 0; i < count; i++) sum[i] = a[i] + b[i];
        return 2;
    }
    const float *restrict c = sources[2], *restrict d = sources[3];
    for (int64_t i = 0; i < count; i++) sum[i] = ((a[i] + b[i]) + c[i]) + d[i];
    return 4;
}

static inline __attribute__((always_inline)) void fold_chunk(float *sum, const float *const *sources,
                                                             int32_t source_count, int64_t count, bool first) {
    int32_t taken = first ? set_sources(sum, sources, source_count, count) : 0;
    add_sources(sum, sources + taken, source_count - taken, count);
}

typedef void (*fold_fn)(float *sum, const float *const *sources, int32_t source_count, int64_t count, bool first);

static void fold_plain(float *sum, const float *const *sources, int32_t source_count, int64_t count, bool first) {
    fold_chunk(sum, sources, source_count, count, first);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void fold_avx2(float *sum, const float *const *sources, int32_t source_count,
                                                      int64_t count, bool first) {
    fold_chunk(sum, sources, source_count, count, first);
}
static fold_fn choose_fold(void) { return __builtin_cpu_supports("avx2") ? fold_avx2 : fold_plain; }
#else
static fold_fn choose_fold(void) { return fold_plain; }
#endif

typedef struct fold {
    float *accumulator;
    const float *const *sources;
    int32_t source_count;
    int64_t count;
    bool first;
    fold_fn run;
} fold;

static void fold_task(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const fold *work = argument;
    int64_t begin = index * TASK_ELEMENTS, end = shd_min(begin + TASK_ELEMENTS, work->count);
    for (int64_t at = begin; at < end; at += CHUNK_ELEMENTS) {
        const float *sources[SHD_COMM_MAX_RANKS];
        for (int32_t s = 0; s < work->source_count; s++) sources[s] = work->sources[s] + at;
        work->run(work->accumulator + at, sources, work->source_count, shd_min(CHUNK_ELEMENTS, end - at), work->first);
    }
}

void shd_wide_fold(shd_pool *pool, float *accumulator, const float *const *sources, int32_t source_count, int64_t count,
                   bool first) {
    assert(source_count <= SHD_COMM_MAX_RANKS);
    fold work = {.accumulator = accumulator,
                 .sources = sources,
                 .source_count = source_count,
                 .count = count,
                 .first = first,
                 .run = choose_fold()};
    int64_t task_count = shd_div_ceil(count, TASK_ELEMENTS);
    if (pool && task_count > 1) {
        shd_pool_run(pool, fold_task, &work, task_count);
    } else {
        for (int64_t i = 0; i < task_count; i++) fold_task(&work, i, 0);
    }
}
