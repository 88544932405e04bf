/* Products by cuBLASLt, and what goes with them.
 *
 * Row-major C = op(A)·op(B) is column-major Cᵀ = op(B)ᵀ·op(A)ᵀ of the same memory, so the operands change places. What is
 * added to a product is its third matrix (the old output, or the residual), and the bias its epilogue: one rounding in
 * all. Where the library knows no algorithm for that epilogue, or two matrices are to be added, the output is given bias
 * and matrices first, and the product is added to them: in 16 bits that rounds twice.
 *
 * How a problem is solved is asked for once and kept: descriptors and the first algorithm that the library offers for its
 * shape, types and alignment, without splitting sums over blocks, whose order would be left to chance. */
#include "runtime/base/arith.h"
#include "runtime/base/hash.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/device/cuda.h"
#include "runtime/device/cuda_loader.h"
#include "runtime/ops/cuda/cuda_ops.h"
#include "runtime/ops/cuda/products.h"

#include <string.h>

/* cuBLASLt wants its workspace at a multiple of 256 bytes; scratch begins at one of 64. */
enum { WORKSPACE_BYTES = 32 << 20, WORKSPACE_ALIGNMENT = 256, SOLUTIONS = 512, ALIGNMENTS = 5 };

/* All that the choice of an algorithm depends on; without gaps, as it is compared byte by byte. */
typedef struct problem {
    int64_t m, n, k, lda, ldb, ldc;
    int32_t dtype, c_dtype;
    int32_t transposes, adds, biased;
    int32_t alignments[ALIGNMENTS]; /* of a, b, c, what is added, bias; bytes, at most 256 */
} problem;

typedef struct solution {
    problem of;
    bool is_taken, is_possible;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, c; /* as the library names them: our b, our a, our c */
    cublasLtMatmulAlgo_t algorithm;
} solution;

typedef struct products {
    const shd_cublaslt *lt;
    cublasLtHandle_t handle;
    cublasLtMatmulPreference_t preference;
    int32_t next; /* to make room for, where all are taken */
    solution solutions[SOLUTIONS];
} products;

static bool note(shd_stream *stream, const shd_cublaslt *lt, cublasStatus_t status, const char *what) {
    if (status == CUBLAS_STATUS_SUCCESS) return true;
    shd_cuda_fail(stream, "cuBLASLt fails with %s (%d) in %s", lt->cublasLtGetStatusString(status), (int)status, what);
    return false;
}

/* --- life --------------------------------------------------------------------------------------------------------- */

static void forget(const products *with, solution *s) {
    if (s->product) with->lt->cublasLtMatmulDescDestroy(s->product);
    if (s->a) with->lt->cublasLtMatrixLayoutDestroy(s->a);
    if (s->b) with->lt->cublasLtMatrixLayoutDestroy(s->b);
    if (s->c) with->lt->cublasLtMatrixLayoutDestroy(s->c);
    *s = (solution){.is_taken = false};
}

static void destroy(void *user) {
    products *with = user;
    if (!with) return;
    for (int i = 0; i < SOLUTIONS; i++) forget(with, &with->solutions[i]);
    if (with->preference) with->lt->cublasLtMatmulPreferenceDestroy(with->preference);
    if (with->handle) with->lt->cublasLtDestroy(with->handle);
    shd_free(with);
}

static bool prefer(shd_stream *stream, products *with) {
    const shd_cublaslt *lt = with->lt;
    const uint64_t workspace_bytes = WORKSPACE_BYTES;
    const uint32_t whole_sums = CUBLASLT_REDUCTION_SCHEME_NONE;
    return note(stream, lt, lt->cublasLtMatmulPreferenceCreate(&with->preference), "a preference") &&
           note(stream, lt,
                lt->cublasLtMatmulPreferenceSetAttribute(with->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                         &workspace_bytes, sizeof workspace_bytes),
                "a preference") &&
           note(stream, lt,
                lt->cublasLtMatmulPreferenceSetAttribute(with->preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                         &whole_sums, sizeof whole_sums),
                "a preference");
}

static void *create(shd_stream *stream) {
    products *with = shd_alloc(1, sizeof *with);
    if (!with) {
        shd_cuda_fail(stream, "no memory for a table of products");
        return NULL;
    }
    if (shd_cublaslt_load(&with->lt) != SHERD_OK) {
        shd_cuda_fail(stream, "%s", sherd_last_error());
        shd_free(with);
        return NULL;
    }
    if (note(stream, with->lt, with->lt->cublasLtCreate(&with->handle), "its start") && prefer(stream, with))
        return with;
    destroy(with);
    return NULL;
}

/* --- solutions ---------------------------------------------------------------------------------------------------- */

static int32_t alignment_of(const void *pointer) {
    uintptr_t at = (uintptr_t)pointer;
    return !pointer || at % 256 == 0 ? 256 : (int32_t)(at & -at);
}

static problem problem_of(const shd_math *math, const shd_matmul *p, const void *added, const void *bias) {
    problem of;
    memset(&of, 0, sizeof of);
    of.m = p->m, of.n = p->n, of.k = p->k;
    of.lda = p->lda, of.ldb = p->ldb, of.ldc = p->ldc;
    of.dtype = (int32_t)math->dtype;
    of.c_dtype = (int32_t)(p->wide_c ? SHERD_FP32 : math->dtype);
    of.transposes = p->a_transposed + 2 * p->b_transposed;
    of.adds = added != NULL, of.biased = bias != NULL;
    const void *pointers[ALIGNMENTS] = {p->a, p->b, p->c, added, bias};
    for (int i = 0; i < ALIGNMENTS; i++) of.alignments[i] = alignment_of(pointers[i]);
    return of;
}

static cudaDataType_t type_of(int32_t dtype) {
    return dtype == SHERD_FP32 ? CUDA_R_32F : dtype == SHERD_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

static bool describe_product(shd_stream *stream, const products *with, solution *s) {
    const shd_cublaslt *lt = with->lt;
    const cublasOperation_t of_a = s->of.transposes & 2 ? CUBLAS_OP_T : CUBLAS_OP_N,
                            of_b = s->of.transposes & 1 ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    const char *what = "the description of a product";
    if (!note(stream, lt, lt->cublasLtMatmulDescCreate(&s->product, CUBLAS_COMPUTE_32F, CUDA_R_32F), what))
        return false;
    if (!note(stream, lt,
              lt->cublasLtMatmulDescSetAttribute(s->product, CUBLASLT_MATMUL_DESC_TRANSA, &of_a, sizeof of_a), what) ||
        !note(stream, lt,
              lt->cublasLtMatmulDescSetAttribute(s->product, CUBLASLT_MATMUL_DESC_TRANSB, &of_b, sizeof of_b), what))
        return false;
    return !s->of.biased || note(stream, lt,
                                 lt->cublasLtMatmulDescSetAttribute(s->product, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                                    &epilogue, sizeof epilogue),
                                 what);
}

static bool describe_matrices(shd_stream *stream, const products *with, solution *s) {
    const shd_cublaslt *lt = with->lt;
    const problem *of = &s->of;
    const bool a_turned = of->transposes & 1, b_turned = of->transposes & 2;
    const uint64_t m = (uint64_t)of->m, n = (uint64_t)of->n, k = (uint64_t)of->k;
    const char *what = "the description of a matrix";
    return note(stream, lt,
                lt->cublasLtMatrixLayoutCreate(&s->a, type_of(of->dtype), b_turned ? k : n, b_turned ? n : k, of->ldb),
                what) &&
           note(stream, lt,
                lt->cublasLtMatrixLayoutCreate(&s->b, type_of(of->dtype), a_turned ? m : k, a_turned ? k : m, of->lda),
                what) &&
           note(stream, lt, lt->cublasLtMatrixLayoutCreate(&s->c, type_of(of->c_dtype), n, m, of->ldc), what);
}

static bool prefer_alignments(shd_stream *stream, const products *with, const problem *of) {
    static const cublasLtMatmulPreferenceAttributes_t attributes[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const uint32_t bytes[] = {(uint32_t)of->alignments[1], (uint32_t)of->alignments[0],
                              (uint32_t)(of->adds ? of->alignments[3] : of->alignments[2]),
                              (uint32_t)of->alignments[2]};
    for (int i = 0; i < 4; i++)
        if (!note(stream, with->lt,
                  with->lt->cublasLtMatmulPreferenceSetAttribute(with->preference, attributes[i], &bytes[i],
                                                                 sizeof bytes[i]),
                  "a preference"))
            return false;
    return true;
}

/* Asks for an algorithm. That there is none is an answer too, where another way is left. */
static void solve(shd_stream *stream, products *with, solution *s) {
    const shd_cublaslt *lt = with->lt;
    cublasLtMatmulHeuristicResult_t found = {0};
    int count = 0;
    if (!describe_product(stream, with, s) || !describe_matrices(stream, with, s) ||
        !prefer_alignments(stream, with, &s->of))
        return;
    cublasStatus_t status = lt->cublasLtMatmulAlgoGetHeuristic(with->handle, s->product, s->a, s->b, s->c, s->c,
                                                               with->preference, 1, &found, &count);
    s->is_possible = status == CUBLAS_STATUS_SUCCESS && count > 0 && found.state == CUBLAS_STATUS_SUCCESS;
    s->algorithm = found.algo;
    if (!s->is_possible && !s->of.biased)
        (void)note(stream, lt, status == CUBLAS_STATUS_SUCCESS ? CUBLAS_STATUS_NOT_SUPPORTED : status,
                   "the choice of an algorithm");
}

static solution *find(shd_stream *stream, products *with, const problem *of) {
    uint64_t hash = shd_hash_bytes(0, of, sizeof *of);
    for (int i = 0; i < SOLUTIONS; i++) {
        solution *s = &with->solutions[(hash + (uint64_t)i) % SOLUTIONS];
        if (s->is_taken && memcmp(&s->of, of, sizeof *of) == 0) return s;
        if (s->is_taken) continue;
        s->of = *of;
        s->is_taken = true;
        solve(stream, with, s);
        return s;
    }
    /* More shapes than any model has: one of them has to go. */
    solution *s = &with->solutions[with->next++ % SOLUTIONS];
    forget(with, s);
    return find(stream, with, of);
}

/* --- products ----------------------------------------------------------------------------------------------------- */

static void *workspace_of(const shd_math *math) {
    return (void *)shd_round_up((int64_t)(uintptr_t)math->scratch, WORKSPACE_ALIGNMENT);
}

/* c = op(a)·op(b) + added + bias; false where there is no way to do it at once. */
static bool multiply(const shd_math *math, products *with, const shd_matmul *p, const void *added, const void *bias) {
    const shd_cublaslt *lt = with->lt;
    const float one = 1, beta = added ? 1 : 0;
    const problem of = problem_of(math, p, added, bias);
    solution *s = find(math->stream, with, &of);
    if (!s->is_possible) return false;
    if (bias &&
        !note(math->stream, lt,
              lt->cublasLtMatmulDescSetAttribute(s->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias),
              "a bias"))
        return true;
    (void)note(math->stream, lt,
               lt->cublasLtMatmul(with->handle, s->product, &one, p->b, s->a, p->a, s->b, &beta, added ? added : p->c,
                                  s->c, p->c, s->c, &s->algorithm, workspace_of(math), WORKSPACE_BYTES,
                                  shd_cuda_stream(math->stream)),
               "a product");
    return true;
}

static void seed(const shd_math *math, const shd_matmul *p) {
    const shd_seed with = {.rows = p->m,
                           .columns = p->n,
                           .stride = p->ldc,
                           .c = p->c,
                           .c_dtype = p->wide_c ? SHERD_FP32 : math->dtype,
                           .dtype = math->dtype,
                           .accumulate = p->accumulate,
                           .bias = p->bias,
                           .residual = p->residual};
    shd_cuda_note(math->stream, shd_launch_seed(shd_cuda_stream(math->stream), &with), "the start of a product");
}

void shd_cuda_matmul(const shd_math *math, const shd_matmul *p) {
    if (p->m == 0 || p->n == 0 || shd_cuda_has_failed(math->stream)) return;
    products *with = shd_cuda_products(math->stream, create, destroy);
    if (!with) return;
    const void *added = p->accumulate ? p->c : p->residual;
    const bool at_once = p->k > 0 && !(p->accumulate && p->residual);
    if (at_once && multiply(math, with, p, added, p->bias)) return;
    if (shd_cuda_has_failed(math->stream)) return;
    seed(math, p);
    if (p->k > 0) (void)multiply(math, with, p, p->c, NULL);
}

int64_t shd_cuda_matmul_scratch_bytes(sherd_dtype dtype, int32_t threads) {
    (void)dtype, (void)threads;
    return WORKSPACE_BYTES + WORKSPACE_ALIGNMENT;
}

/* --- what goes with them ------------------------------------------------------------------------------------------ */

void shd_cuda_column_sum(const shd_math *math, int64_t rows, int64_t columns, const void *x, float *sum) {
    if (columns == 0) return;
    if (rows == 0) {
        math->device_ops->clear(math->stream, sum, columns * (int64_t)sizeof *sum);
        return;
    }
    shd_cuda_note(math->stream,
                  shd_launch_column_sum(shd_cuda_stream(math->stream), math->dtype, rows, columns, x, math->scratch,
                                        WORKSPACE_BYTES, sum),
                  "the gradient of a bias");
}

void shd_cuda_add_bias(const shd_math *math, int64_t rows, int64_t columns, const void *bias, float *y) {
    if (rows == 0 || columns == 0) return;
    shd_cuda_note(math->stream, shd_launch_add_bias(shd_cuda_stream(math->stream), math->dtype, rows, columns, bias, y),
                  "a bias");
}

void shd_cuda_narrow(const shd_math *math, int64_t count, const float *x, void *y) {
    if (count == 0) return;
    shd_cuda_note(math->stream, shd_launch_narrow(shd_cuda_stream(math->stream), math->dtype, count, x, y),
                  "a rounding to 16 bits");
}
