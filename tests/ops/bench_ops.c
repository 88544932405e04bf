/* What the operations reach on this machine: products of GPT-2 124M's shapes, tiled and by one plain sgemm call, and
 * the memory-bound operations. `bench-ops [rows…]`; default 1024 and 256. Medians of several runs. */
#include "runtime/base/clock.h"
#include "runtime/ops/ops.h"

#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPEATS_MAX = 15, THREADS = 2, D = 768, HEADS = 12, VOCABULARY = 50257 };

static shd_math maths[THREADS];

static float *numbers(int64_t count) {
    float *x = aligned_alloc(64, ((size_t)count * sizeof(float) + 63) / 64 * 64);
    if (!x) exit(1);
    for (int64_t i = 0; i < count; i++) x[i] = (float)(i * 2654435761u % 2001) * 1e-3f - 1.0f;
    return x;
}

static int by_value(const void *a, const void *b) { return (*(const double *)a > *(const double *)b) * 2 - 1; }

/* Median milliseconds of run(context, math), over about a quarter of a second. */
static double time_of(void (*run)(void *context, const shd_math *math), void *context, const shd_math *math) {
    double ms[REPEATS_MAX], spent = 0;
    int count = 0;
    run(context, math);
    while (count < REPEATS_MAX && (count < 3 || spent < 250)) {
        double start = shd_clock_ms();
        run(context, math);
        spent += ms[count++] = shd_clock_ms() - start;
    }
    qsort(ms, (size_t)count, sizeof *ms, by_value);
    return ms[count / 2];
}

static void run_product(void *context, const shd_math *math) { shd_op_matmul(math, context); }
static void run_sgemm(void *context, const shd_math *math) {
    const shd_matmul *p = context;
    (void)math;
    cblas_sgemm(CblasRowMajor, p->a_transposed ? CblasTrans : CblasNoTrans, p->b_transposed ? CblasTrans : CblasNoTrans,
                (blasint)p->m, (blasint)p->n, (blasint)p->k, 1, p->a, (blasint)p->lda, p->b, (blasint)p->ldb, 0, p->c,
                (blasint)p->ldc);
}

static void bench_product(const char *name, int64_t m, int64_t n, int64_t k, bool ta, bool tb) {
    shd_matmul p = {.m = m, .n = n, .k = k, .a_transposed = ta, .b_transposed = tb};
    p.lda = ta ? m : k;
    p.ldb = tb ? k : n;
    p.ldc = n;
    float *a = numbers(m * k), *b = numbers(k * n), *c = numbers(m * n);
    p.a = a, p.b = b, p.c = c;
    const double flop = 2.0 * (double)m * (double)n * (double)k * 1e-6;
    printf("%-16s %5d x%6d x%6d  %c%c ", name, (int)m, (int)n, (int)k, ta ? 'T' : 'N', tb ? 'T' : 'N');
    for (int threads = 1; threads <= THREADS; threads++) {
        openblas_set_num_threads(threads);
        const double plain = flop / time_of(run_sgemm, &p, NULL);
        openblas_set_num_threads(1);
        printf(" %8.1f %8.1f", flop / time_of(run_product, &p, &maths[threads - 1]), plain);
    }
    printf("\n");
    free(a), free(b), free(c);
}

static void bench_products(int64_t rows) {
    static const struct {
        const char *name;
        int64_t in, out;
    } layers[] = {{"attention qkv", D, 3 * D}, {"attention out", D, D}, {"mlp in", D, 4 * D}, {"mlp out", 4 * D, D}};
    for (int i = 0; i < 4; i++) {
        bench_product(layers[i].name, rows, layers[i].out, layers[i].in, false, false);
        bench_product("  input grad", rows, layers[i].in, layers[i].out, false, true);
        bench_product("  weight grad", layers[i].in, layers[i].out, rows, true, false);
    }
    bench_product("head", rows, VOCABULARY, D, false, true);
    bench_product("  input grad", rows, D, VOCABULARY, false, false);
    bench_product("  weight grad", VOCABULARY, D, rows, true, false);
}

/* Memory-bound operations share one set of buffers. */
typedef struct buffers {
    int64_t rows;
    float *x, *y, *z, *weight, *mean, *rstd, *dweight, *dbias;
    int32_t *targets;
    double *loss;
} buffers;

static void run_gelu(void *context, const shd_math *math) {
    buffers *b = context;
    shd_op_gelu(math, b->rows * 4 * D, b->x, b->y);
}
static void run_gelu_backward(void *context, const shd_math *math) {
    buffers *b = context;
    shd_op_gelu_backward(math, b->rows * 4 * D, b->x, b->z, b->y);
}
static void run_layernorm(void *context, const shd_math *math) {
    buffers *b = context;
    shd_op_layernorm(math, b->rows, D, 1e-5f, b->x, b->weight, b->weight, b->y, b->mean, b->rstd);
}
static void run_layernorm_backward(void *context, const shd_math *math) {
    buffers *b = context;
    shd_op_layernorm_backward(math, b->rows, D, b->x, b->weight, b->mean, b->rstd, b->z, NULL, b->y, b->dweight,
                              b->dbias);
}
static void run_column_sum(void *context, const shd_math *math) {
    buffers *b = context;
    shd_op_column_sum(math, b->rows, 4 * D, b->x, b->y);
}
static void run_cross_entropy(void *context, const shd_math *math) {
    buffers *b = context;
    shd_op_cross_entropy(math, b->rows, 4 * D, b->x, b->targets, 1, false, b->loss);
}

static void bench_elementwise(int64_t rows) {
    static const struct {
        const char *name;
        void (*run)(void *context, const shd_math *math);
        int streams, width; /* arrays read or written, in units of rows × D */
    } cases[] = {{"gelu", run_gelu, 2, 4},
                 {"gelu backward", run_gelu_backward, 3, 4},
                 {"layernorm", run_layernorm, 2, 1},
                 {"layernorm backward", run_layernorm_backward, 5, 1},
                 {"column sum", run_column_sum, 1, 4},
                 {"cross-entropy loss", run_cross_entropy, 1, 4}};
    buffers b = {.rows = rows};
    b.x = numbers(rows * 4 * D), b.y = numbers(rows * 4 * D), b.z = numbers(rows * 4 * D), b.weight = numbers(D);
    b.mean = numbers(rows), b.rstd = numbers(rows), b.dweight = numbers(D), b.dbias = numbers(D);
    b.targets = calloc((size_t)rows, sizeof *b.targets), b.loss = calloc((size_t)rows, sizeof *b.loss);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        printf("%-20s %5d rows ", cases[i].name, (int)rows);
        const double mb = (double)(rows * D * cases[i].streams * cases[i].width) * 4e-6;
        for (int t = 0; t < THREADS; t++) printf(" %8.1f", mb / time_of(cases[i].run, &b, &maths[t]));
        printf("\n");
    }
    free(b.x), free(b.y), free(b.z), free(b.weight), free(b.mean), free(b.rstd), free(b.dweight), free(b.dbias);
    free(b.targets), free(b.loss);
}

typedef struct attention_bench {
    shd_attention a;
    float *dout, *dq, *dk, *dv;
} attention_bench;

static void run_attention(void *context, const shd_math *math) {
    shd_op_attention(math, &((attention_bench *)context)->a);
}
static void run_attention_backward(void *context, const shd_math *math) {
    attention_bench *b = context;
    shd_op_attention_backward(math, &b->a, b->dout, b->dq, b->dk, b->dv);
}

/* GFLOP/s of the products that causal attention needs: 2 forward, 5 backward, half of each square. */
static void bench_attention(int64_t sequences, int64_t context) {
    const int64_t size = D / HEADS, rows = sequences * context;
    float *qkv = numbers(rows * 3 * D), *out = numbers(rows * D), *sum = numbers(rows * HEADS);
    float *dqkv = numbers(rows * 3 * D), *dout = numbers(rows * D);
    void *scratch = numbers(shd_op_attention_backward_scratch_bytes(SHERD_FP32, context, size, THREADS) / 4);
    attention_bench b = {
        {sequences, context, HEADS, HEADS, size, qkv, qkv + D, qkv + 2 * D, 3 * D, 3 * D, out, D, sum, scratch},
        dout,
        dqkv,
        dqkv + D,
        dqkv + 2 * D};
    const double flop = (double)(rows * context * D) * 1e-6 * 2;
    printf("%-20s %2d x%5d    ", "attention", (int)sequences, (int)context);
    for (int t = 0; t < THREADS; t++) printf(" %8.1f", flop / time_of(run_attention, &b, &maths[t]));
    printf("\n%-20s %2d x%5d    ", "attention backward", (int)sequences, (int)context);
    for (int t = 0; t < THREADS; t++) printf(" %8.1f", 2.5 * flop / time_of(run_attention_backward, &b, &maths[t]));
    printf("\n");
    free(qkv), free(out), free(sum), free(dqkv), free(dout), free(scratch);
}

int main(int argc, char **argv) {
    for (int t = 0; t < THREADS; t++)
        if (shd_pool_create(t + 1, &maths[t].pool) != SHERD_OK) return 1;
    shd_ops_init();
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("GFLOP/s of products, OpenBLAS %s            tiled 1T  plain 1T tiled 2T  plain 2T\n",
           openblas_get_corename());
    if (argc == 1) bench_products(1024), bench_products(256);
    for (int i = 1; i < argc; i++) bench_products(atoll(argv[i]));
    printf("\nGFLOP/s of attention                    1T       2T\n");
    bench_attention(1, 1024);
    bench_attention(4, 256);
    printf("\nGB/s read and written                1T       2T\n");
    bench_elementwise(1024);
    for (int t = 0; t < THREADS; t++) shd_pool_destroy(maths[t].pool);
    return 0;
}
