/* cuBLASLt on the software device: descriptions are kept as they are told, and a product is an operation of its stream that
 * declares every byte it touches, gaps between columns included, and the workspace as written.
 *
 *   SOFTCUDA_NO_EPILOGUE   set: no algorithm is found for products with an epilogue
 * Reports: "cublasLt: …". */
#include "runtime/base/dtype.h"
#include "tests/softcuda/softcuda.h"

#include <cblas.h>
#include <cublasLt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct description {
    cublasComputeType_t compute;
    cublasOperation_t a, b;
    cublasLtEpilogue_t epilogue;
    const void *bias;
} description;

/* Column-major: `columns` columns of `rows` elements, `apart` elements apart. */
typedef struct matrix {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t apart;
} matrix;

typedef struct preference {
    uint64_t workspace_bytes;
    uint32_t schemes, alignments[4];
} preference;

#define ENTER()                                                                                                        \
    do {                                                                                                               \
        int code_ = softcuda_enter(__func__);                                                                          \
        if (code_) return (cublasStatus_t)code_;                                                                       \
    } while (0)

/* --- descriptions ------------------------------------------------------------------------------------------------- */

size_t cublasLtGetVersion(void) { return CUBLAS_VERSION; }

const char *cublasLtGetStatusString(cublasStatus_t status) {
    return status == CUBLAS_STATUS_SUCCESS            ? "CUBLAS_STATUS_SUCCESS"
           : status == CUBLAS_STATUS_EXECUTION_FAILED ? "CUBLAS_STATUS_EXECUTION_FAILED"
           : status == CUBLAS_STATUS_NOT_SUPPORTED    ? "CUBLAS_STATUS_NOT_SUPPORTED"
           : status == CUBLAS_STATUS_INVALID_VALUE    ? "CUBLAS_STATUS_INVALID_VALUE"
                                                      : "another status";
}

static cublasStatus_t make(size_t bytes, void **out) {
    *out = calloc(1, bytes);
    return *out ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

static cublasStatus_t end(void *object) {
    free(object);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t set(void *field, size_t field_bytes, const void *value, size_t bytes, const char *function) {
    if (bytes != field_bytes) {
        softcuda_add_report("cublasLt: %s: an attribute of %zu bytes is told in %zu", function, field_bytes, bytes);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    memcpy(field, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    ENTER();
    return make(1, (void **)handle);
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return end(handle); }

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t apart) {
    ENTER();
    cublasStatus_t status = make(sizeof(matrix), (void **)out);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    *(matrix *)(void *)*out = (matrix){type, rows, columns, apart};
    if (apart < (int64_t)rows)
        softcuda_add_report("cublasLt: columns of %llu rows are %lld apart", (unsigned long long)rows,
                            (long long)apart);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) { return end(layout); }
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void *value,
                                                size_t bytes) {
    ENTER();
    (void)layout, (void)attribute, (void)value, (void)bytes;
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute, cudaDataType_t scale) {
    ENTER();
    if (scale != CUDA_R_32F || compute != CUBLAS_COMPUTE_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
    cublasStatus_t status = make(sizeof(description), (void **)out);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    *(description *)(void *)*out = (description){compute, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, NULL};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) { return end(product); }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes) {
    ENTER();
    description *d = (description *)(void *)product;
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return set(&d->a, sizeof d->a, value, bytes, __func__);
    case CUBLASLT_MATMUL_DESC_TRANSB: return set(&d->b, sizeof d->b, value, bytes, __func__);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return set(&d->epilogue, sizeof d->epilogue, value, bytes, __func__);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return set(&d->bias, sizeof d->bias, value, bytes, __func__);
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out) {
    ENTER();
    cublasStatus_t status = make(sizeof(preference), (void **)out);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    *(preference *)(void *)*out = (preference){0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) { return end(p); }
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t object,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                                                    size_t bytes) {
    ENTER();
    preference *p = (preference *)(void *)object;
    switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return set(&p->workspace_bytes, sizeof p->workspace_bytes, value, bytes, __func__);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return set(&p->schemes, sizeof p->schemes, value, bytes, __func__);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return set(&p->alignments[0], 4, value, bytes, __func__);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return set(&p->alignments[1], 4, value, bytes, __func__);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return set(&p->alignments[2], 4, value, bytes, __func__);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return set(&p->alignments[3], 4, value, bytes, __func__);
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

/* An algorithm is what it was made for: alignments, and whether it needs the workspace. */
typedef struct algorithm {
    uint32_t alignments[4], workspace_bytes;
} algorithm;

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t object, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int *count) {
    ENTER();
    (void)handle, (void)a, (void)b, (void)c, (void)d;
    const preference *p = (const preference *)(const void *)object;
    const description *of = (const description *)(const void *)product;
    if (p->schemes != CUBLASLT_REDUCTION_SCHEME_NONE)
        softcuda_add_report("cublasLt: sums may be split, in an order left to chance");
    *count = 0;
    if (wanted < 1 || (of->epilogue != CUBLASLT_EPILOGUE_DEFAULT && getenv("SOFTCUDA_NO_EPILOGUE")))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    algorithm made = {.workspace_bytes = (uint32_t)(p->workspace_bytes < 4096 ? p->workspace_bytes : 4096)};
    memcpy(made.alignments, p->alignments, sizeof made.alignments);
    memset(&results[0], 0, sizeof results[0]);
    memcpy(&results[0].algo, &made, sizeof made);
    results[0].workspaceSize = made.workspace_bytes;
    results[0].state = CUBLAS_STATUS_SUCCESS;
    *count = 1;
    return CUBLAS_STATUS_SUCCESS;
}

/* --- products ----------------------------------------------------------------------------------------------------- */

typedef struct work {
    description of;
    matrix a, b, c, d;
    const void *a_at, *b_at, *c_at;
    void *d_at;
    float alpha, beta;
} work;

static size_t size_of(cudaDataType_t type) { return type == CUDA_R_32F ? 4 : 2; }

static size_t extent(const matrix *m) {
    return m->columns && m->rows ? ((m->columns - 1) * (size_t)m->apart + m->rows) * size_of(m->type) : 0;
}

static float widen(cudaDataType_t type, const void *at, size_t i) {
    if (type == CUDA_R_32F) return ((const float *)at)[i];
    uint16_t half = ((const uint16_t *)at)[i];
    return type == CUDA_R_16F ? shd_fp16_widen(half) : shd_bf16_widen(half);
}

static void narrow(cudaDataType_t type, void *at, size_t i, float value) {
    if (type == CUDA_R_32F)
        ((float *)at)[i] = value;
    else
        ((uint16_t *)at)[i] = type == CUDA_R_16F ? shd_fp16_round(value) : shd_bf16_round(value);
}

static float *widen_all(const matrix *m, const void *at) {
    float *dense = malloc((m->rows * m->columns + 1) * sizeof *dense);
    for (size_t j = 0; dense && j < m->columns; j++)
        for (size_t i = 0; i < m->rows; i++) dense[j * m->rows + i] = widen(m->type, at, j * (size_t)m->apart + i);
    return dense;
}

static void finish(const work *w, const float *product) {
    for (size_t j = 0; j < w->d.columns; j++)
        for (size_t i = 0; i < w->d.rows; i++) {
            float value = product[j * w->d.rows + i];
            if (w->beta != 0) value += w->beta * widen(w->c.type, w->c_at, j * (size_t)w->c.apart + i);
            if (w->of.epilogue == CUBLASLT_EPILOGUE_BIAS) value += widen(w->d.type, w->of.bias, i);
            narrow(w->d.type, w->d_at, j * (size_t)w->d.apart + i, value);
        }
}

static softcuda_progress run(void *state) {
    const work *w = state;
    float *a = widen_all(&w->a, w->a_at), *b = widen_all(&w->b, w->b_at);
    float *product = calloc(w->d.rows * w->d.columns + 1, sizeof *product);
    const uint64_t inner = w->of.a == CUBLAS_OP_N ? w->a.columns : w->a.rows;
    if (a && b && product) {
        openblas_set_num_threads(1);
        cblas_sgemm(CblasColMajor, w->of.a == CUBLAS_OP_N ? CblasNoTrans : CblasTrans,
                    w->of.b == CUBLAS_OP_N ? CblasNoTrans : CblasTrans, (int)w->d.rows, (int)w->d.columns, (int)inner,
                    w->alpha, a, (int)w->a.rows, b, (int)w->b.rows, 0, product, (int)w->d.rows);
        finish(w, product);
    }
    free(a), free(b), free(product);
    return SOFTCUDA_DONE;
}

static void check_alignment(const char *what, const void *at, uint32_t bytes) {
    if (at && (uintptr_t)at % bytes)
        softcuda_add_report("cublasLt: %s at %p is not aligned to %u bytes", what, at, bytes);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                              const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *chosen, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
    ENTER();
    (void)handle;
    work *w = malloc(sizeof *w);
    if (!w) return CUBLAS_STATUS_ALLOC_FAILED;
    *w = (work){.of = *(const description *)(const void *)product,
                .a = *(const matrix *)(const void *)a_layout,
                .b = *(const matrix *)(const void *)b_layout,
                .c = *(const matrix *)(const void *)c_layout,
                .d = *(const matrix *)(const void *)d_layout,
                .a_at = a,
                .b_at = b,
                .c_at = c,
                .d_at = d,
                .alpha = *(const float *)alpha,
                .beta = *(const float *)beta};
    algorithm made;
    memcpy(&made, chosen, sizeof made);
    check_alignment("a", a, made.alignments[0]), check_alignment("b", b, made.alignments[1]);
    check_alignment("c", w->beta != 0 ? c : NULL, made.alignments[2]), check_alignment("d", d, made.alignments[3]);
    check_alignment("workspace", workspace, 256);
    if (workspace_bytes < made.workspace_bytes)
        softcuda_add_report("cublasLt: %zu bytes of workspace are too few", workspace_bytes);
    const bool biased = w->of.epilogue == CUBLASLT_EPILOGUE_BIAS;
    const softcuda_access accesses[] = {
        {a, extent(&w->a), false},
        {b, extent(&w->b), false},
        {c, w->beta != 0 ? extent(&w->c) : 0, false},
        {d, extent(&w->d), true},
        {biased ? w->of.bias : NULL, biased ? w->d.rows * size_of(w->d.type) : 0, false},
        {workspace, made.workspace_bytes, true},
    };
    const softcuda_operation operation = {.name = "cublasLtMatmul",
                                          .run = run,
                                          .drop = free,
                                          .state = w,
                                          .accesses = accesses,
                                          .access_count = sizeof accesses / sizeof *accesses};
    return softcuda_enqueue(stream, &operation) == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
