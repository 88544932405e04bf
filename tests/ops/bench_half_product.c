/* What products of 16-bit matrices reach on this machine, on one thread: every path that it has, in GFLOP/s and as a
 * share of what the path's instruction can do at best, and sgemm beside it. `bench-half-product [seconds per shape]`,
 * default 0.1. Each number is the best of its runs, in processor time of the thread, and sgemm's runs alternate with
 * the path's: on a machine with other work both see the same weather. */
#include "runtime/base/dtype.h"
#include "runtime/ops/half/path.h"
#include "runtime/ops/ops.h"

#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { REPEATS_LEAST = 3 };

static double spent_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

#ifdef __x86_64__
/* Twelve independent sums are more than any core has multiplications under way. */
#define TWELVE(OP, end) OP(0) OP(1) OP(2) OP(3) OP(4) OP(5) OP(6) OP(7) OP(8) OP(9) OP(10) OP(11) end
#define DOT(i)          "vdpbf16ps %%zmm12, %%zmm13, %%zmm" #i "\n"
#define FUSED(i)        "vfmadd231ps %%zmm12, %%zmm13, %%zmm" #i "\n"
#define CLEAR           "vpxord %%zmm12, %%zmm12, %%zmm12\nvpxord %%zmm13, %%zmm13, %%zmm13\n"
#define SUMS                                                                                                           \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13"

static void spin_dot(int64_t turns) {
    __asm__ volatile(CLEAR "1:\n" TWELVE(DOT, "dec %0\njnz 1b\n") : "+r"(turns)::SUMS);
}
static void spin_fused(int64_t turns) {
    __asm__ volatile(CLEAR "1:\n" TWELVE(FUSED, "dec %0\njnz 1b\n") : "+r"(turns)::SUMS);
}
static void spin_tiles(int64_t turns) {
    uint8_t layout[64] = {1};
    for (int t = 0; t < 8; t++) layout[16 + 2 * t] = 64, layout[48 + t] = 16;
    __asm__ volatile("ldtilecfg %1\n1:\n"
                     "tdpbf16ps %%tmm4, %%tmm5, %%tmm0\ntdpbf16ps %%tmm4, %%tmm6, %%tmm1\n"
                     "tdpbf16ps %%tmm4, %%tmm5, %%tmm2\ntdpbf16ps %%tmm4, %%tmm6, %%tmm3\n"
                     "dec %0\njnz 1b\ntilerelease\n"
                     : "+r"(turns)
                     : "m"(layout));
}

/* GFLOP/s of `flop` a turn, the best of five. */
static double peak_of(void (*spin)(int64_t turns), double flop) {
    enum { TURNS = 300000 };
    double best = 0;
    for (int i = 0; i < 5; i++) {
        const double start = spent_ms();
        spin(TURNS);
        const double rate = flop * TURNS * 1e-6 / (spent_ms() - start);
        best = rate > best ? rate : best;
    }
    return best;
}
#endif

typedef struct bench {
    shd_half_product half;
    const float *a, *b;
    float *c;
} bench;

static void *memory(int64_t bytes) {
    void *x = aligned_alloc(64, ((size_t)bytes + 63) / 64 * 64);
    if (!x) exit(1);
    return memset(x, 0, ((size_t)bytes + 63) / 64 * 64);
}

/* Numbers of [-1, 1), widened in *wide. */
static uint16_t *numbers(sherd_dtype dtype, int64_t count, float **wide) {
    uint16_t *x = memory(count * 2);
    *wide = memory(count * 4);
    for (int64_t i = 0; i < count; i++) (*wide)[i] = (float)(i * 2654435761u % 2001) * 1e-3f - 1.0f;
    shd_round(dtype, count, *wide, x);
    shd_widen(dtype, count, x, *wide);
    return x;
}

static void run_sgemm(const bench *b) {
    const shd_half_product *p = &b->half;
    cblas_sgemm(CblasRowMajor, p->a_transposed ? CblasTrans : CblasNoTrans, p->b_transposed ? CblasTrans : CblasNoTrans,
                (blasint)p->m, (blasint)p->n, (blasint)p->k, 1, b->a, (blasint)p->lda, b->b, (blasint)p->ldb, 0, b->c,
                (blasint)p->ldc);
}

static double seconds_per_shape = 0.1;

/* Weight gradients (the transposed a) leave in fp32, the others in 16 bits. */
static void bench_shape(const shd_half_path *path, sherd_dtype dtype, double peak, const int64_t shape[3], bool ta,
                        bool tb) {
    const int64_t m = shape[0], n = shape[1], k = shape[2];
    float *a, *b;
    shd_half_product p = {.dtype = dtype, .a_transposed = ta, .b_transposed = tb, .m = m, .n = n, .k = k};
    p.lda = ta ? m : k, p.ldb = tb ? k : n, p.ldc = n;
    p.a = numbers(dtype, m * k, &a), p.b = numbers(dtype, k * n, &b);
    p.c_dtype = ta ? SHERD_FP32 : dtype, p.c = memory(m * n * 4), p.scratch = memory(path->scratch_bytes);
    const bench run = {p, a, b, memory(m * n * 4)};
    double half = 1e9, single = 1e9;
    const double until = spent_ms() + seconds_per_shape * 1e3;
    for (int i = 0; i < REPEATS_LEAST || spent_ms() < until; i++) {
        const double start = spent_ms();
        path->run(&p);
        const double between = spent_ms();
        run_sgemm(&run);
        const double end = spent_ms();
        half = between - start < half ? between - start : half;
        single = end - between < single ? end - between : single;
    }
    const double flop = 2e-6 * (double)m * (double)n * (double)k;
    printf("%-12s %-5s %5d x%5d x%5d  %c%c %8.1f %6.1f %% %8.1f %7.2f\n", path->name, shd_dtype_text(dtype), (int)m,
           (int)n, (int)k, ta ? 'T' : 'N', tb ? 'T' : 'N', flop / half, 100 * flop / half / peak, flop / single,
           single / half);
    free((void *)p.a), free((void *)p.b), free(p.c), free(p.scratch), free(a), free(b), free(run.c);
}

static void bench_path(const shd_half_path *path, sherd_dtype dtype, double peak) {
    static const int64_t shapes[][3] = {{512, 768, 768}, {512, 3072, 768}, {512, 768, 3072}, {2048, 2048, 2048}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        bench_shape(path, dtype, peak, shapes[i], false, false);
        bench_shape(path, dtype, peak, shapes[i], false, true);
        bench_shape(path, dtype, peak, shapes[i], true, false);
    }
}

int main(int argc, char **argv) {
    if (argc > 1) seconds_per_shape = atof(argv[1]);
    shd_ops_init();
    setvbuf(stdout, NULL, _IOLBF, 0);
    const char *chosen = shd_half_product_name(SHERD_BF16);
    double fused = 1, dot = 1, tiles = 1;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f")) fused = peak_of(spin_fused, 12 * 32);
    if (__builtin_cpu_supports("avx512bf16")) dot = peak_of(spin_dot, 12 * 64);
    if (strcmp(chosen, "amx") == 0) tiles = peak_of(spin_tiles, 4 * 16 * 16 * 64);
#endif
    printf("bf16 takes %s. Peaks, GFLOP/s: fp32 FMA %.0f, vdpbf16ps %.0f, tdpbf16ps %.0f (1: not here)\n\n", chosen,
           fused, dot, tiles);
    printf("path         type      m      n      k     GFLOP/s of peak    sgemm  faster\n");
    bench_path(&shd_half_widening, SHERD_FP16, fused);
    bench_path(&shd_half_widening, SHERD_BF16, fused);
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512bf16")) bench_path(&shd_half_avx512_bf16, SHERD_BF16, dot);
    if (strcmp(chosen, "amx") == 0) bench_path(&shd_half_amx, SHERD_BF16, tiles);
#endif
    return 0;
}
