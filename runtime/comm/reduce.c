/* The rank-ordered sum. A chunk of the accumulator stays in the first-level cache while the sources pass over it, up to
 * four at a time; the order of additions is the order of the sources, whatever the grouping. Only additions happen,
 * element by element, so vector width cannot change a bit. */
#include "runtime/comm/wide.h"

#include "runtime/base/arith.h"
#include "runtime/comm/comm.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

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

/* The same of bfloat16 sources, one at a time. */
static inline __attribute__((always_inline)) void fold_bf16_chunk(float *restrict sum, const uint16_t *const *sources,
                                                                  int32_t source_count, int64_t count, bool first) {
    for (int32_t s = 0; s < source_count; s++) {
        const uint16_t *restrict source = sources[s];
        if (first && s == 0)
            for (int64_t i = 0; i < count; i++) sum[i] = shd_bf16_widen(source[i]);
        else
            for (int64_t i = 0; i < count; i++) sum[i] += shd_bf16_widen(source[i]);
    }
}

/* Whether any element is infinite or NaN: its exponent has all bits set. */
static inline __attribute__((always_inline)) bool is_fp32_nonfinite(const float *values, int64_t count) {
    uint32_t found = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        found |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return found != 0;
}

static inline __attribute__((always_inline)) bool is_bf16_nonfinite(const uint16_t *values, int64_t count) {
    uint32_t found = 0;
    for (int64_t i = 0; i < count; i++) found |= (values[i] & 0x7f80u) == 0x7f80u;
    return found != 0;
}

/* Folds one chunk, which begins at element `at` of the accumulator and of each source. True: the sum is not finite. */
typedef bool (*fold_fn)(float *accumulator, const void *const *sources, int32_t source_count, int64_t at, int64_t count,
                        bool first);

static inline __attribute__((always_inline)) bool fold_fp32_at(float *accumulator, const void *const *sources,
                                                               int32_t source_count, int64_t at, int64_t count,
                                                               bool first) {
    const float *begins[SHD_COMM_MAX_RANKS] = {0};
    for (int32_t s = 0; s < source_count; s++) begins[s] = (const float *)sources[s] + at;
    fold_chunk(accumulator + at, begins, source_count, count, first);
    return is_fp32_nonfinite(accumulator + at, count);
}

static inline __attribute__((always_inline)) bool fold_bf16_at(float *accumulator, const void *const *sources,
                                                               int32_t source_count, int64_t at, int64_t count,
                                                               bool first) {
    const uint16_t *begins[SHD_COMM_MAX_RANKS] = {0};
    for (int32_t s = 0; s < source_count; s++) begins[s] = (const uint16_t *)sources[s] + at;
    fold_bf16_chunk(accumulator + at, begins, source_count, count, first);
    return is_fp32_nonfinite(accumulator + at, count);
}

#define DEFINE_FOLD(name, body, attribute)                                                                             \
    attribute static bool name(float *accumulator, const void *const *sources, int32_t source_count, int64_t at,       \
                               int64_t count, bool first) {                                                            \
        return body(accumulator, sources, source_count, at, count, first);                                             \
    }
DEFINE_FOLD(fold_fp32_plain, fold_fp32_at, )
DEFINE_FOLD(fold_bf16_plain, fold_bf16_at, )
#if defined(__x86_64__)
DEFINE_FOLD(fold_fp32_avx2, fold_fp32_at, __attribute__((target("avx2"))))
DEFINE_FOLD(fold_bf16_avx2, fold_bf16_at, __attribute__((target("avx2"))))
static fold_fn choose_fold(sherd_dtype dtype) {
    bool avx2 = __builtin_cpu_supports("avx2");
    if (dtype == SHERD_BF16) return avx2 ? fold_bf16_avx2 : fold_bf16_plain;
    return avx2 ? fold_fp32_avx2 : fold_fp32_plain;
}
#else
static fold_fn choose_fold(sherd_dtype dtype) { return dtype == SHERD_BF16 ? fold_bf16_plain : fold_fp32_plain; }
#endif

typedef struct fold {
    float *accumulator; /* of a sum: where it goes */
    const void *const *sources;
    int32_t source_count;
    sherd_dtype dtype;
    int64_t count;
    bool first;
    fold_fn run;
    _Atomic uint64_t nonfinite; /* sources, by bits */
} fold;

/* A chunk of the sum is not finite: whose doing is it? Nobody's, where an earlier sum was not, or where it overflows. */
static void find_nonfinite(fold *work, int64_t at, int64_t count) {
    for (int32_t s = 0; s < work->source_count; s++) {
        const void *source = work->sources[s];
        bool here = work->dtype == SHERD_BF16 ? is_bf16_nonfinite((const uint16_t *)source + at, count)
                                              : is_fp32_nonfinite((const float *)source + at, count);
        if (here) atomic_fetch_or(&work->nonfinite, (uint64_t)1 << s);
    }
}

static void fold_task(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    fold *work = argument;
    int64_t begin = index * TASK_ELEMENTS, end = shd_min(begin + TASK_ELEMENTS, work->count);
    for (int64_t at = begin; at < end; at += CHUNK_ELEMENTS) {
        int64_t count = shd_min(CHUNK_ELEMENTS, end - at);
        if (work->run(work->accumulator, work->sources, work->source_count, at, count, work->first))
            find_nonfinite(work, at, count);
    }
}

/* A sum of fp32 passes through memory of its own, so that it may replace a source. */
static void sum_task(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const fold *work = argument;
    int64_t begin = index * TASK_ELEMENTS, end = shd_min(begin + TASK_ELEMENTS, work->count);
    for (int64_t at = begin; at < end; at += CHUNK_ELEMENTS) {
        const void *sources[SHD_COMM_MAX_RANKS] = {0};
        float sum[CHUNK_ELEMENTS];
        int64_t count = shd_min(CHUNK_ELEMENTS, end - at);
        for (int32_t s = 0; s < work->source_count; s++) sources[s] = (const float *)work->sources[s] + at;
        work->run(sum, sources, work->source_count, 0, count, true);
        memcpy(work->accumulator + at, sum, (size_t)count * sizeof *sum);
    }
}

static void run_tasks(shd_pool *pool, void (*task)(void *argument, int64_t index, int32_t worker), fold *work) {
    int64_t task_count = shd_div_ceil(work->count, TASK_ELEMENTS);
    if (pool && task_count > 1) {
        shd_pool_run(pool, task, work, task_count);
    } else {
        for (int64_t i = 0; i < task_count; i++) task(work, i, 0);
    }
}

void shd_wide_fold(shd_pool *pool, float *accumulator, const void *const *sources, sherd_dtype dtype,
                   int32_t source_count, int64_t count, bool first, uint64_t *nonfinite) {
    assert(source_count <= SHD_COMM_MAX_RANKS && (dtype == SHERD_FP32 || dtype == SHERD_BF16));
    fold work = {.accumulator = accumulator,
                 .sources = sources,
                 .source_count = source_count,
                 .dtype = dtype,
                 .count = count,
                 .first = first,
                 .run = choose_fold(dtype)};
    run_tasks(pool, fold_task, &work);
    *nonfinite = atomic_load(&work.nonfinite);
}

void shd_wide_sum(shd_pool *pool, float *out, const void *const *sources, int32_t source_count, int64_t count) {
    assert(source_count <= SHD_COMM_MAX_RANKS);
    fold work = {.accumulator = out,
                 .sources = sources,
                 .source_count = source_count,
                 .count = count,
                 .run = choose_fold(SHERD_FP32)};
    run_tasks(pool, sum_task, &work);
}
