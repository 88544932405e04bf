/* What blocks of checkpoints shrink to, and how fast, on one thread, beside zstd alone and memcpy: the best of some runs
 * over more blocks than caches hold, in the thread's own time.
 *
 * usage: bench-checkpoint-block [DTYPE:FILE]…    values as they lie in memory; without any, those of a short AdamW run
 * whose gradients are noise of a size of its own for every row */
#include "io/checkpoint_block.h"
#include "io/planes.h"
#include "optim/optimizer.h"
#include "runtime/base/arith.h"
#include "runtime/base/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zstd.h>

enum { COUNT = 1 << 23, ROW = 1024, STEPS = 60, RUNS = 3 };
static const int32_t levels[] = {1, 3, 9};

static double spent_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *memory(int64_t bytes) {
    void *x = aligned_alloc(SHD_BLOCK_ALIGN_BYTES, (size_t)shd_round_up(bytes + 1, SHD_BLOCK_ALIGN_BYTES));
    if (!x) exit(1);
    return memset(x, 0, (size_t)shd_round_up(bytes + 1, SHD_BLOCK_ALIGN_BYTES));
}

/* Values, as blocks and as they come back. */
typedef struct series {
    const char *name;
    sherd_dtype dtype;
    const char *values;
    int64_t bytes, block_bytes, block_count;
    char *stored, *back;
    shd_block_form *forms;
} series;

static series make_series(const char *name, sherd_dtype dtype, const void *values, int64_t bytes) {
    int64_t block_bytes = shd_span_bytes(dtype, shd_block_count_max(dtype)), blocks = shd_div_ceil(bytes, block_bytes);
    series s = {name,
                dtype,
                values,
                bytes,
                block_bytes,
                blocks,
                memory(blocks * SHD_BLOCK_RAW_BYTES_MAX),
                memory(bytes),
                memory(blocks * (int64_t)sizeof(shd_block_form))};
    int64_t value_bytes = dtype == SHERD_INT8 ? SHD_CODE_BLOCK_BYTES : shd_dtype_bytes(dtype);
    for (int64_t b = 0; b < blocks; b++) {
        int64_t length = shd_min(block_bytes, bytes - b * block_bytes) / value_bytes;
        s.forms[b] =
            (shd_block_form){.dtype = dtype, .count = dtype == SHERD_INT8 ? length * SHD_CODE_BLOCK_COUNT : length};
    }
    return s;
}

static void print_row(const char *name, const char *how, const series *s, int64_t stored, double packing,
                      double unpacking) {
    printf("%-14s %-10s %6.3f %8.2f %8.2f\n", name, how, (double)s->bytes / (double)stored, 1e-9 * s->bytes / packing,
           1e-9 * s->bytes / unpacking);
}

static void bench_codec(const series *s, int32_t level) {
    void *room = memory(shd_block_codec_bytes(level));
    shd_block_codec *codec = shd_block_codec_init(room, level);
    double packing = INFINITY, unpacking = INFINITY;
    int64_t stored = 0;
    for (int run = 0; run < RUNS; run++) {
        double begin = spent_s();
        for (int64_t b = stored = 0; b < s->block_count; b++) {
            shd_block_encode(codec, s->values + b * s->block_bytes, s->stored + b * SHD_BLOCK_RAW_BYTES_MAX,
                             &s->forms[b]);
            stored += s->forms[b].stored_bytes;
        }
        double between = spent_s();
        for (int64_t b = 0; b < s->block_count; b++)
            if (shd_block_decode(codec, s->stored + b * SHD_BLOCK_RAW_BYTES_MAX, &s->forms[b],
                                 s->back + b * s->block_bytes) != SHERD_OK)
                exit(1);
        packing = fmin(packing, between - begin), unpacking = fmin(unpacking, spent_s() - between);
    }
    if (memcmp(s->back, s->values, (size_t)s->bytes) != 0) exit(1);
    char how[16];
    snprintf(how, sizeof how, "level %d", level);
    print_row(s->name, how, s, stored, packing, unpacking);
    free(room);
}

static void bench_zstd(const series *s) {
    ZSTD_CCtx *compressor = ZSTD_createCCtx();
    ZSTD_DCtx *decompressor = ZSTD_createDCtx();
    size_t *lengths = calloc((size_t)s->block_count, sizeof *lengths),
           room = ZSTD_compressBound(SHD_BLOCK_RAW_BYTES_MAX);
    char *stored = memory(s->block_count * (int64_t)room);
    double packing = INFINITY, unpacking = INFINITY;
    int64_t total = 0;
    for (int run = 0; run < RUNS; run++) {
        double begin = spent_s();
        for (int64_t b = total = 0; b < s->block_count; b++) {
            size_t length = (size_t)shd_min(s->block_bytes, s->bytes - b * s->block_bytes);
            lengths[b] = ZSTD_compressCCtx(compressor, stored + b * (int64_t)room, room, s->values + b * s->block_bytes,
                                           length, 1);
            total += (int64_t)lengths[b];
        }
        double between = spent_s();
        for (int64_t b = 0; b < s->block_count; b++)
            ZSTD_decompressDCtx(decompressor, s->back + b * s->block_bytes,
                                (size_t)shd_min(s->block_bytes, s->bytes - b * s->block_bytes),
                                stored + b * (int64_t)room, lengths[b]);
        packing = fmin(packing, between - begin), unpacking = fmin(unpacking, spent_s() - between);
    }
    print_row(s->name, "zstd -1", s, total, packing, unpacking);
    ZSTD_freeCCtx(compressor), ZSTD_freeDCtx(decompressor);
    free(stored), free(lengths);
}

static void bench_series(const char *name, sherd_dtype dtype, const void *values, int64_t bytes) {
    series s = make_series(name, dtype, values, bytes);
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) bench_codec(&s, levels[i]);
    bench_codec(&s, 0);
    bench_zstd(&s);
    free(s.stored), free(s.back), free(s.forms);
}

static void bench_kernels(void) {
    const shd_plane_kernels *list[SHD_PLANE_KERNELS_MAX];
    char *values = memory(SHD_BLOCK_RAW_BYTES_MAX), *to = memory(SHD_BLOCK_RAW_BYTES_MAX);
    shd_random_normal(1, 0, SHD_BLOCK_RAW_BYTES_MAX / 4, 0.02, (float *)values);
    printf("\nGB/s in a cache   split4    join4   split2    join2     hash   memcpy\n");
    for (int32_t count = shd_plane_kernels_list(list), k = 0; k < count; k++) {
        double best[6] = {INFINITY, INFINITY, INFINITY, INFINITY, INFINITY, INFINITY};
        enum { BYTES = 1 << 18, REPEATS = 20 };
        unsigned char *planes[4];
        const unsigned char *read[4];
        for (int64_t n = BYTES / 4, p = 0; p < 4; p++) read[p] = planes[p] = (unsigned char *)to + p * n;
        volatile uint64_t sink = 0;
        for (int run = 0; run < 6 * REPEATS; run++) {
            double begin = spent_s();
            switch (run % 6) {
            case 0: list[k]->split4(BYTES / 4, values, planes); break;
            case 1: list[k]->join4(BYTES / 4, read, values); break;
            case 2: list[k]->split2(BYTES / 4, values, planes); break;
            case 3: list[k]->join2(BYTES / 4, read, values); break;
            case 4: sink = list[k]->hash(values, BYTES); break;
            default: memcpy(to, values, BYTES);
            }
            best[run % 6] = fmin(best[run % 6], (spent_s() - begin) * (run % 6 == 2 || run % 6 == 3 ? 2 : 1));
        }
        (void)sink;
        printf("%-14s", list[k]->name);
        for (int i = 0; i < 6; i++) printf(" %8.1f", 1e-9 * BYTES / best[i]);
        printf("\n");
    }
    free(values), free(to);
}

/* --- values ------------------------------------------------------------------------------------------------------- */

static void bench_files(int count, char **names) {
    static const sherd_dtype dtypes[] = {SHERD_FP32, SHERD_BF16, SHERD_FP16, SHERD_INT8};
    for (int i = 0; i < count; i++) {
        char *colon = strchr(names[i], ':');
        FILE *file = colon ? fopen(colon + 1, "rb") : NULL;
        if (!file) exit(2);
        *colon = 0;
        char *values = memory(4 * COUNT);
        int64_t bytes = (int64_t)fread(values, 1, 4 * COUNT, file);
        fclose(file);
        for (size_t d = 0; d < 4; d++)
            if (strcmp(shd_dtype_text(dtypes[d]), names[i]) == 0) {
                int64_t unit = dtypes[d] == SHERD_INT8 ? SHD_CODE_BLOCK_BYTES : shd_dtype_bytes(dtypes[d]);
                bench_series(strrchr(colon + 1, '/') ? strrchr(colon + 1, '/') + 1 : colon + 1, dtypes[d], values,
                             bytes / unit * unit);
            }
        free(values);
    }
}

static void bench_training(void) {
    const sherd_optimizer optimizer = {.kind = SHERD_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
    float *arrays[4];
    shd_code_block *blocks[2];
    static shd_codebook books[2];
    shd_pool *pool;
    if (shd_pool_create(1, &pool) != SHERD_OK) exit(1);
    for (int i = 0; i < 4; i++) arrays[i] = memory(4 * COUNT);
    for (int root = 0; root < 2; root++) {
        shd_codebook_init(&books[root], root);
        blocks[root] = memory(COUNT / SHD_CODE_BLOCK_COUNT * (int64_t)sizeof *blocks[root]);
    }
    shd_random_normal(1, 0, COUNT, 0.02, arrays[0]);
    for (int step = 0; step < STEPS; step++) {
        for (int64_t row = 0; row < COUNT; row += ROW)
            shd_random_normal(2, step * (int64_t)COUNT + row, ROW, 1e-3 * exp2((double)(row / ROW * 7 % 11) / 4 - 8),
                              arrays[1] + row);
        shd_update update = {.parameters = arrays[0],
                             .gradients = arrays[1],
                             .states = {arrays[2], arrays[3]},
                             .count = COUNT,
                             .step = step,
                             .lr = 1e-3,
                             .gradient_scale = 1};
        shd_optimizer_update(&optimizer, pool, &update);
        for (int32_t s = 0; s < 2; s++) update.state_blocks[s] = blocks[s], update.codebooks[s] = &books[s];
        shd_optimizer_update(&optimizer, pool, &update);
    }
    int64_t code_bytes = COUNT / SHD_CODE_BLOCK_COUNT * SHD_CODE_BLOCK_BYTES;
    bench_series("weights fp32", SHERD_FP32, arrays[0], 4 * COUNT);
    shd_round(SHERD_BF16, COUNT, arrays[0], arrays[1]);
    bench_series("weights bf16", SHERD_BF16, arrays[1], 2 * COUNT);
    bench_series("exp_avg", SHERD_FP32, arrays[2], 4 * COUNT);
    bench_series("exp_avg_sq", SHERD_FP32, arrays[3], 4 * COUNT);
    bench_series("exp_avg int8", SHERD_INT8, blocks[0], code_bytes);
    bench_series("exp_avg_sq int8", SHERD_INT8, blocks[1], code_bytes);
    memset(arrays[1], 0, 4 * COUNT);
    bench_series("zeros", SHERD_FP32, arrays[1], 4 * COUNT);
    shd_pool_destroy(pool);
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("                           ratio   encode   decode   GB/s\n");
    if (argc > 1)
        bench_files(argc - 1, argv + 1);
    else
        bench_training();
    bench_kernels();
    return 0;
}
