/* The mathematics of models: on the CPU, and by the table at the end on devices. Row-major matrices; "rows" are tokens (sequences × context).
 *
 * Parameters and activations are stored in the type that shd_math names, and are `void *` here. What is `float *` or
 * `double *` is stored so whatever that type is: statistics, tables, losses, gradients of parameters. Arithmetic and
 * sums are fp32 or better; a result is rounded once, when it is stored.
 *
 * Results depend on shapes and values alone: work is cut into tiles at borders fixed by the shape, each computed by one
 * thread in one order, whatever the number of threads. reference.h has the same operations in plain C. No function
 * allocates: where work memory is needed, a *_scratch_bytes function tells how much and the caller lends it, 64-byte
 * aligned. Aliasing: outputs must not overlap inputs unless a function says "in place". */
#ifndef SHD_OPS_OPS_H
#define SHD_OPS_OPS_H

#include "runtime/device/device.h"
#include "runtime/device/pool.h"
#include "runtime/ops/dropout.h"

#include <sherd/dtype.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct shd_ops shd_ops;

/* What every operation is given. Owns: borrows all of it. */
typedef struct shd_math {
    const shd_ops *ops; /* where operations run: &shd_ops_cpu, or a device's table */
    shd_pool *pool;     /* on the CPU */
    /* On a device: all memory that operations are given is its, but for structs, and they are enqueued here. Failures
     * stick to the device (device.h). */
    const shd_device_ops *device_ops;
    shd_stream *stream;
    sherd_dtype dtype; /* of parameters and activations */
    void *scratch;     /* for products: shd_op_matmul_scratch_bytes, 64-byte aligned; NULL where that is 0 */
} shd_math;

/* To be called once in each process before the first product: one OpenBLAS thread per caller. Logs the kernel set it
 * picked. */
void shd_ops_init(void);
/* The same without a word, for a library that multiplies in somebody else's process. */
void shd_ops_init_quietly(void);
/* Which kernels and products this process runs, in words, and which library multiplies, with its version. */
void shd_ops_kernels(char *text, size_t bytes);
void shd_ops_library(char *text, size_t bytes);
/* What one thread reaches in products of 512×512 matrices, measured for some 30 ms. After shd_ops_init. Fails: MEMORY. */
sherd_status shd_ops_measure(sherd_dtype dtype, double *gflops);

/* c[m,n] = (accumulate ? c : 0) + op(a)·op(b) + bias + residual. In 16 bits with c of that type, accumulate and residual
 * exclude each other. */
typedef struct shd_matmul {
    int64_t m, n, k;
    const void *a;         /* [m,k], or [k,m] when a_transposed; leading dimension lda */
    const void *b;         /* [k,n], or [n,k] when b_transposed; ldb */
    void *c;               /* [m,n]; ldc */
    int64_t lda, ldb, ldc; /* ≥ the row length */
    bool a_transposed, b_transposed;
    bool accumulate;
    bool wide_c;          /* c is fp32, whatever the type of a and b; then without bias and residual */
    const void *bias;     /* [n] or NULL */
    const void *residual; /* [m,n] with leading dimension ldc, or NULL; may be c */
} shd_matmul;
/* 0 with fp32. */
int64_t shd_op_matmul_scratch_bytes(sherd_dtype dtype, int32_t threads);
void shd_op_matmul(const shd_math *math, const shd_matmul *product);
/* Time spent in products and their floating-point operations (2·m·n·k each), since the last reset, all pools of this
 * process. */
typedef struct shd_matmul_stats {
    double ms;
    double flop;
} shd_matmul_stats;
void shd_matmul_stats_get(shd_matmul_stats *out);
void shd_matmul_stats_reset(void);

/* sum[j] = Σ_i x[i,j] over rows in order. The gradient of a bias. */
void shd_op_column_sum(const shd_math *math, int64_t rows, int64_t columns, const void *x, float *sum);

/* LayerNorm over the last dimension, eps 1e-5 as given: y = (x - mean)·rstd·weight + bias. mean, rstd: [rows]. */
void shd_op_layernorm(const shd_math *math, int64_t rows, int64_t columns, float eps, const void *x, const void *weight,
                      const void *bias, void *y, float *mean, float *rstd);
/* dx = (residual ? residual : 0) + the gradient through the norm; residual may be dx. dweight, dbias: written, either
 * may be NULL. */
void shd_op_layernorm_backward(const shd_math *math, int64_t rows, int64_t columns, const void *x, const void *weight,
                               const float *mean, const float *rstd, const void *dy, const void *residual, void *dx,
                               float *dweight, float *dbias);

/* RMSNorm: y = x · (mean(x²) + eps)^-½ · weight. rstd: [rows]. */
void shd_op_rmsnorm(const shd_math *math, int64_t rows, int64_t columns, float eps, const void *x, const void *weight,
                    void *y, float *rstd);
void shd_op_rmsnorm_backward(const shd_math *math, int64_t rows, int64_t columns, const void *x, const void *weight,
                             const float *rstd, const void *dy, const void *residual, void *dx, float *dweight);

/* GELU, tanh form: y = ½x(1 + tanh(√(2/π)(x + 0.044715x³))). y may be x. */
void shd_op_gelu(const shd_math *math, int64_t count, const void *x, void *y);
/* dx = dy · gelu'(x); dx may be dy. */
void shd_op_gelu_backward(const shd_math *math, int64_t count, const void *x, const void *dy, void *dx);

/* ReLU: y = max(x, 0). y may be x. */
void shd_op_relu(const shd_math *math, int64_t count, const void *x, void *y);
/* dx = dy where y, ReLU's result, is above 0, else 0; dx may be dy. */
void shd_op_relu_backward(const shd_math *math, int64_t count, const void *y, const void *dy, void *dx);

/* SwiGLU: y = gate·sigmoid(gate)·up. y may be gate or up. */
void shd_op_swiglu(const shd_math *math, int64_t count, const void *gate, const void *up, void *y);
/* dgate may be gate's or dy's memory, dup up's or dy's, but not both the same. */
void shd_op_swiglu_backward(const shd_math *math, int64_t count, const void *gate, const void *up, const void *dy,
                            void *dgate, void *dup);

/* Rotary positions, in place, on x: `rows` rows of `heads` heads of `head_size`, row stride `stride`; row i has
 * position i mod `context`. Pairs are (j, j + head_size/2), angle position · theta^(-2j/head_size), in double.
 * `inverse` turns back (the gradient). `table`: shd_op_rope_table filled it; [context, head_size] floats: cos then sin
 * per position. */
void shd_op_rope_table(int64_t context, int64_t head_size, double theta, float *table);
void shd_op_rope(const shd_math *math, int64_t rows, int64_t context, int64_t heads, int64_t head_size, int64_t stride,
                 const float *table, bool inverse, void *x);

/* y[i] = token[ids[i]] + (position ? position[i mod context] : 0). ids < vocabulary are the caller's promise. */
void shd_op_embedding(const shd_math *math, int64_t rows, int64_t context, int64_t columns, int64_t vocabulary,
                      const int32_t *ids, const void *token, const void *position, void *y);
/* dtoken: zeroed first unless `accumulate`, then dtoken[ids[i]] += dy[i] for rows in order; dposition[t]: written, sum
 * over sequences in order. Either may be NULL. */
void shd_op_embedding_backward(const shd_math *math, int64_t rows, int64_t context, int64_t columns, int64_t vocabulary,
                               const int32_t *ids, const void *dy, bool accumulate, float *dtoken, float *dposition);

/* Causal attention of `sequences` sequences of `context` tokens. Query head h uses key-value head h / (heads /
 * kv_heads). q[i] = q + i·q_stride + h·head_size, likewise k, v (kv_stride) and out (out_stride). log_sum: [sequences,
 * heads, context], kept for backward. Never stores more of the score matrix than a block of query rows per thread.
 *
 * With `past` the queries are those of the last `context` tokens of each sequence: there are past + context keys and
 * values a sequence, query i sees the first past + i + 1 of them, and scratch is that of a context of past + context.
 * Forward only. */
typedef struct shd_attention {
    int64_t sequences, context, heads, kv_heads, head_size;
    const void *q, *k, *v;
    int64_t q_stride, kv_stride;
    void *out;
    int64_t out_stride;
    float *log_sum;
    void *scratch; /* shd_op_attention_scratch_bytes */
    int64_t past;
    /* [sequences, context]: the first key of its sequence that a query sees, not after its own; NULL: all see the first. */
    const int32_t *starts;
    /* Of probabilities, forward and backward alike: row a query's place, column a key's; NULL: none. Not with `past`. */
    const shd_dropout *dropout;
} shd_attention;
int64_t shd_op_attention_scratch_bytes(sherd_dtype dtype, int64_t context, int64_t head_size, int32_t threads);
void shd_op_attention(const shd_math *math, const shd_attention *attention);
/* dq, dk, dv have the strides of q, k, v and are written. `forward->out` is what forward wrote; dout has out_stride. */
int64_t shd_op_attention_backward_scratch_bytes(sherd_dtype dtype, int64_t context, int64_t head_size, int32_t threads);
void shd_op_attention_backward(const shd_math *math, const shd_attention *forward, const void *dout, void *dq, void *dk,
                               void *dv);

/* y = mask·x (+ residual, or NULL): row i is row i mod context of sequence first_sequence + i / context. y may be x or
 * residual. Without residual it is its own gradient: dx = mask·dy. */
void shd_op_dropout(const shd_math *math, const shd_dropout *dropout, int64_t rows, int64_t context, int64_t columns,
                    const void *x, const void *residual, void *y);

/* Cross-entropy of `rows` rows of logits [rows, vocabulary]: loss[i] = log Σ exp(logits[i]) - logits[i, targets[i]];
 * rows whose target is negative count for nothing: loss 0. With `gradient` the logits become their own gradient,
 * (softmax - onehot) · scale, zero in rows that do not count. It has the math's type: row i of it begins where row i of
 * the logits began, so that in 16 bits rows are 2 · vocabulary elements apart. */
void shd_op_cross_entropy(const shd_math *math, int64_t rows, int64_t vocabulary, float *logits, const int32_t *targets,
                          float scale, bool gradient, double *loss);

/* correct[i] = 1 where the first of row i's largest logits is that of targets[i], else 0; also 0 where the target is
 * negative. */
void shd_op_correct(const shd_math *math, int64_t rows, int64_t classes, const float *logits, const int32_t *targets,
                    double *correct);

/* Squared error of each number of `rows` rows: loss[i,j] = (outputs[i,j] − targets[i,j])², 0 where the target is NaN,
 * which counts for nothing. With `gradient` the outputs become their own gradient, 2·(outputs − targets)·scale; its type
 * and where its rows begin are as for cross-entropy. */
void shd_op_square_error(const shd_math *math, int64_t rows, int64_t columns, float *outputs, const float *targets,
                         float scale, bool gradient, double *loss);

/* y[i,j] += bias[j], y in fp32. */
void shd_op_add_bias(const shd_math *math, int64_t rows, int64_t columns, const void *bias, float *y);

/* y[i] = x[i] in the math's type, 16 bits; apart from each other. */
void shd_op_narrow(const shd_math *math, int64_t count, const float *x, void *y);

/* Brings together rows that begin where rows of fp32 did (see shd_op_cross_entropy), in place: afterwards rows are
 * `columns` elements of the math's type apart. */
void shd_op_join_rows(const shd_math *math, int64_t rows, int64_t columns, void *x);

/* --- where operations run ----------------------------------------------------------------------------------------- */

/* Every operation above, by place. A device's table has the same contracts, but: memory is the device's, results come
 * when the stream is past the call, bits are its own (tests compare them by tolerance), and `past` of attention is not
 * there. */
enum { SHD_DEVICE_HEAD_MAX = 256 /* the largest head_size of attention there */ };
struct shd_ops {
    const char *name; /* "cpu", "cuda" */
    int64_t (*matmul_scratch_bytes)(sherd_dtype dtype, int32_t threads);
    int64_t (*attention_scratch_bytes)(sherd_dtype dtype, int64_t sequences, int64_t context, int64_t heads,
                                       int64_t head_size, int32_t threads, bool backward);
    void (*matmul)(const shd_math *math, const shd_matmul *product);
    void (*column_sum)(const shd_math *math, int64_t rows, int64_t columns, const void *x, float *sum);
    void (*layernorm)(const shd_math *math, int64_t rows, int64_t columns, float eps, const void *x, const void *weight,
                      const void *bias, void *y, float *mean, float *rstd);
    void (*layernorm_backward)(const shd_math *math, int64_t rows, int64_t columns, const void *x, const void *weight,
                               const float *mean, const float *rstd, const void *dy, const void *residual, void *dx,
                               float *dweight, float *dbias);
    void (*rmsnorm)(const shd_math *math, int64_t rows, int64_t columns, float eps, const void *x, const void *weight,
                    void *y, float *rstd);
    void (*rmsnorm_backward)(const shd_math *math, int64_t rows, int64_t columns, const void *x, const void *weight,
                             const float *rstd, const void *dy, const void *residual, void *dx, float *dweight);
    void (*gelu)(const shd_math *math, int64_t count, const void *x, void *y);
    void (*gelu_backward)(const shd_math *math, int64_t count, const void *x, const void *dy, void *dx);
    void (*relu)(const shd_math *math, int64_t count, const void *x, void *y);
    void (*relu_backward)(const shd_math *math, int64_t count, const void *y, const void *dy, void *dx);
    void (*swiglu)(const shd_math *math, int64_t count, const void *gate, const void *up, void *y);
    void (*swiglu_backward)(const shd_math *math, int64_t count, const void *gate, const void *up, const void *dy,
                            void *dgate, void *dup);
    void (*rope)(const shd_math *math, int64_t rows, int64_t context, int64_t heads, int64_t head_size, int64_t stride,
                 const float *table, bool inverse, void *x);
    void (*embedding)(const shd_math *math, int64_t rows, int64_t context, int64_t columns, int64_t vocabulary,
                      const int32_t *ids, const void *token, const void *position, void *y);
    void (*embedding_backward)(const shd_math *math, int64_t rows, int64_t context, int64_t columns, int64_t vocabulary,
                               const int32_t *ids, const void *dy, bool accumulate, float *dtoken, float *dposition);
    void (*attention)(const shd_math *math, const shd_attention *attention);
    void (*attention_backward)(const shd_math *math, const shd_attention *forward, const void *dout, void *dq, void *dk,
                               void *dv);
    void (*dropout)(const shd_math *math, const shd_dropout *dropout, int64_t rows, int64_t context, int64_t columns,
                    const void *x, const void *residual, void *y);
    void (*cross_entropy)(const shd_math *math, int64_t rows, int64_t vocabulary, float *logits, const int32_t *targets,
                          float scale, bool gradient, double *loss);
    void (*correct)(const shd_math *math, int64_t rows, int64_t classes, const float *logits, const int32_t *targets,
                    double *correct);
    void (*square_error)(const shd_math *math, int64_t rows, int64_t columns, float *outputs, const float *targets,
                         float scale, bool gradient, double *loss);
    void (*add_bias)(const shd_math *math, int64_t rows, int64_t columns, const void *bias, float *y);
    void (*narrow)(const shd_math *math, int64_t count, const float *x, void *y);
    void (*join_rows)(const shd_math *math, int64_t rows, int64_t columns, void *x);
};
extern const shd_ops shd_ops_cpu;
/* Where the program is linked without it: NULL. */
extern const shd_ops shd_ops_cuda __attribute__((weak));
static inline const shd_ops *shd_ops_device(void) { return &shd_ops_cuda; }

#endif
