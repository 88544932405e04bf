/* What the operations reach on this machine, in each type: products of GPT-2 124M's shapes, tiled and by one plain sgemm
 * call, and the memory-bound operations. `bench-ops [rows…]`; default 1024 and 256. Medians of several runs. */
#include "runtime/base/clock.h"
#include "runtime/base/dtype.h"
#include "runtime/ops/half_product.h"
#include "runtime/ops/ops.h"

#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPEATS_MAX = 15, THREADS = 2, TYPES = 3, D = 768, HEADS = 12, VOCABULARY = 50257 };

static shd_math maths[TYPES][THREADS];

static void *memory(int64_t bytes) {
    void *x = aligned_alloc(64, ((size_t)bytes + 63) / 64 * 64);
    if (!x) exit(1);
    return x;
}

static void *numbers(sherd_dtype dtype, int64_t count) {
    char *x = memory(count * shd_dtype_bytes(dtype));
    for (int64_t i = 0; i < count; i++) {
        const float value = (float)(i * 2654435761u % 2001) * 1e-3f - 1.0f;
        shd_round(dtype, 1, &value, shd_element(dtype, x, i));
    }
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

/* A line: with 1 and 2 threads, the three types and plain sgemm. Gradients of weights are fp32 whatever the type. */
static void bench_product(const char *name, int64_t m, int64_t n, int64_t k, bool ta, bool tb) {
    const double flop = 2.0 * (double)m * (double)n * (double)k * 1e-6;
    double reached[THREADS][TYPES + 1];
    for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++) {
        void *a = numbers(dtype, m * k), *b = numbers(dtype, k * n), *c = numbers(SHERD_FP32, m * n);
        shd_matmul p = {.m = m, .n = n, .k = k, .a = a, .b = b, .c = c, .a_transposed = ta, .b_transposed = tb};
        p.lda = ta ? m : k, p.ldb = tb ? k : n, p.ldc = n, p.wide_c = ta;
        for (int t = 0; t < THREADS; t++) {
            reached[t][dtype] = flop / time_of(run_product, &p, &maths[dtype][t]);
            if (dtype != SHERD_FP32) continue;
            openblas_set_num_threads(t + 1);
            reached[t][TYPES] = flop / time_of(run_sgemm, &p, NULL);
            openblas_set_num_threads(1);
        }
        free(a), free(b), free(c);
    }
    printf("%-16s %5d x%6d x%6d  %c%c ", name, (int)m, (int)n, (int)k, ta ? 'T' : 'N', tb ? 'T' : 'N');
    for (int t = 0; t < THREADS; t++)
        for (int i = 0; i <= TYPES; i++) printf(" %8.1f", reached[t][i]);
    printf("\n");
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
    void *x, *y, *z, *weight;
    float *logits, *mean, *rstd, *dweight, *dbias;
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
    shd_op_column_sum(math, b->rows, 4 * D, b->x, b->logits);
}
static void run_cross_entropy(void *context, const shd_math *math) {
    buffers *b = context;
    shd_op_cross_entropy(math, b->rows, 4 * D, b->logits, b->targets, 1, false, b->loss);
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
    double reached[sizeof cases / sizeof *cases][THREADS][TYPES];
    for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++) {
        buffers b = {.rows = rows};
        b.x = numbers(dtype, rows * 4 * D), b.y = numbers(dtype, rows * 4 * D), b.z = numbers(dtype, rows * 4 * D);
        b.weight = numbers(dtype, D), b.logits = numbers(SHERD_FP32, rows * 4 * D);
        b.mean = numbers(SHERD_FP32, rows), b.rstd = numbers(SHERD_FP32, rows);
        b.dweight = numbers(SHERD_FP32, D), b.dbias = numbers(SHERD_FP32, D);
        b.targets = calloc((size_t)rows, sizeof *b.targets), b.loss = calloc((size_t)rows, sizeof *b.loss);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            for (int t = 0; t < THREADS; t++)
                reached[i][t][dtype] = (double)(rows * D * cases[i].streams * cases[i].width) * 1e-6 /
                                       time_of(cases[i].run, &b, &maths[dtype][t]);
        free(b.x), free(b.y), free(b.z), free(b.weight), free(b.logits), free(b.mean), free(b.rstd), free(b.dweight);
        free(b.dbias), free(b.targets), free(b.loss);
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        printf("%-20s %5d rows     ", cases[i].name, (int)rows);
        for (int t = 0; t < THREADS; t++)
            for (int d = 0; d < TYPES; d++) printf(" %8.2f", reached[i][t][d]);
        printf("\n");
    }
}

typedef struct attention_bench {
    shd_attention a;
    void *dout, *dq, *dk, *dv;
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
    const double flop = (double)(rows * context * D) * 1e-6 * 2;
    double forward[THREADS][TYPES], backward[THREADS][TYPES];
    for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++) {
        void *qkv = numbers(dtype, rows * 3 * D), *dqkv = numbers(dtype, rows * 3 * D), *out = numbers(dtype, rows * D);
        void *dout = numbers(dtype, rows * D), *sum = numbers(SHERD_FP32, rows * HEADS);
        void *scratch = memory(shd_op_attention_backward_scratch_bytes(dtype, context, size, THREADS));
        attention_bench b = {{.sequences = sequences,
                              .context = context,
                              .heads = HEADS,
                              .kv_heads = HEADS,
                              .head_size = size,
                              .q = qkv,
                              .k = shd_element(dtype, qkv, D),
                              .v = shd_element(dtype, qkv, 2 * D),
                              .q_stride = 3 * D,
                              .kv_stride = 3 * D,
                              .out = out,
                              .out_stride = D,
                              .log_sum = sum,
                              .scratch = scratch},
                             dout,
                             dqkv,
                             shd_element(dtype, dqkv, D),
                             shd_element(dtype, dqkv, 2 * D)};
        for (int t = 0; t < THREADS; t++) {
            forward[t][dtype] = flop / time_of(run_attention, &b, &maths[dtype][t]);
            backward[t][dtype] = 2.5 * flop / time_of(run_attention_backward, &b, &maths[dtype][t]);
        }
        free(qkv), free(out), free(sum), free(dqkv), free(dout), free(scratch);
    }
    for (int i = 0; i < 2; i++) {
        printf("%-20s %2d x%5d     ", i ? "attention backward" : "attention", (int)sequences, (int)context);
        for (int t = 0; t < THREADS; t++)
            for (int d = 0; d < TYPES; d++) printf(" %8.1f", (i ? backward : forward)[t][d]);
        printf("\n");
    }
}

int main(int argc, char **argv) {
    shd_ops_init();
    for (int t = 0; t < THREADS; t++) {
        shd_pool *pool;
        if (shd_pool_create(t + 1, &pool) != SHERD_OK) return 1;
        for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++)
            maths[dtype][t] = (shd_math){
                .pool = pool, .dtype = dtype, .scratch = memory(shd_op_matmul_scratch_bytes(dtype, THREADS))};
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("products: fp32 OpenBLAS %s, bf16 %s, fp16 %s; sgemm: one plain call; 1T, 2T: threads\n",
           openblas_get_corename(), shd_half_product_name(SHERD_BF16), shd_half_product_name(SHERD_FP16));
    printf("GFLOP/s of products                       fp32 1T  bf16 1T  fp16 1T sgemm 1T  fp32 2T  bf16 2T  fp16 2T "
           "sgemm 2T\n");
    if (argc == 1) bench_products(1024), bench_products(256);
    for (int i = 1; i < argc; i++) bench_products(atoll(argv[i]));
    printf("\nGFLOP/s of attention              fp32 1T  bf16 1T  fp16 1T  fp32 2T  bf16 2T  fp16 2T\n");
    bench_attention(1, 1024);
    bench_attention(4, 256);
    printf("\nG numbers/s read and written      fp32 1T  bf16 1T  fp16 1T  fp32 2T  bf16 2T  fp16 2T\n");
    bench_elementwise(1024);
    for (int t = 0; t < THREADS; t++) {
        shd_pool_destroy(maths[SHERD_FP32][t].pool);
        for (int d = 0; d < TYPES; d++) free(maths[d][t].scratch);
    }
    return 0;
}
