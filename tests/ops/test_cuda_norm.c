/* LayerNorm and RMSNorm on a device, against the plain references. */
#include "runtime/base/dtype.h"
#include "runtime/ops/cuda/cuda_ops.h"
#include "runtime/ops/reference.h"

#include "check_device.h"
#include <criterion/criterion.h>
#include <stdio.h>

enum { COLUMN_KINDS = 8 };
static const int64_t rows_tried[] = {1, 3, 17, 64},
                     columns_tried[COLUMN_KINDS] = {1, 7, 48, 96, 257, 1024, 2048, 20000};

/* What a norm reads, as numbers that `dtype` holds, and what it gives. */
typedef struct norm_case {
    bool centred; /* LayerNorm, which has mean and bias */
    sherd_dtype dtype;
    int64_t rows, columns, count;
    const float *x, *weight, *bias, *dy, *residual;
} norm_case;

typedef struct norm_results {
    void *y, *dx;
    float *mean, *rstd, *dweight, *dbias;
} norm_results;

enum { WITH_RESIDUAL = 1, OVER_RESIDUAL = 2 };

static norm_case make_case(bool centred, sherd_dtype dtype, int64_t rows, int64_t columns, double offset,
                           bool with_residual) {
    norm_case n = {.centred = centred, .dtype = dtype, .rows = rows, .columns = columns, .count = rows * columns};
    float *x = check_random(n.count, 1, 1);
    for (int64_t i = 0; i < n.count; i++) x[i] += (float)offset;
    n.x = check_loaded(dtype, n.count, check_stored(dtype, n.count, x));
    n.weight = check_random_of(dtype, columns, 2, 1);
    n.bias = check_random_of(dtype, columns, 3, 1);
    n.dy = check_random_of(dtype, n.count, 4, 1);
    n.residual = with_residual ? check_random_of(dtype, n.count, 5, 1) : NULL;
    return n;
}

static const float eps = 1e-5f;

/* On the device; results are brought to the host. */
static norm_results run(const norm_case *n, bool over_residual, bool dweight, bool dbias) {
    const int64_t bytes = n->count * shd_dtype_bytes(n->dtype), row_bytes = n->rows * 4, column_bytes = n->columns * 4;
    const shd_math math = check_device_math(n->dtype);
    const void *x = check_device_stored(n->dtype, n->count, n->x);
    const void *weight = check_device_stored(n->dtype, n->columns, n->weight);
    const void *bias = check_device_stored(n->dtype, n->columns, n->bias);
    const void *dy = check_device_stored(n->dtype, n->count, n->dy);
    void *residual = check_device_stored(n->dtype, n->count, n->residual);
    norm_results d = {.y = check_device_memory(bytes),
                      .dx = over_residual ? residual : check_device_memory(bytes),
                      .mean = check_device_memory(row_bytes),
                      .rstd = check_device_memory(row_bytes),
                      .dweight = check_device_memory(column_bytes),
                      .dbias = check_device_memory(column_bytes)};
    if (n->centred) {
        shd_cuda_layernorm(&math, n->rows, n->columns, eps, x, weight, bias, d.y, d.mean, d.rstd);
        shd_cuda_layernorm_backward(&math, n->rows, n->columns, x, weight, d.mean, d.rstd, dy, residual, d.dx,
                                    dweight ? d.dweight : NULL, dbias ? d.dbias : NULL);
    } else {
        shd_cuda_rmsnorm(&math, n->rows, n->columns, eps, x, weight, d.y, d.rstd);
        shd_cuda_rmsnorm_backward(&math, n->rows, n->columns, x, weight, d.rstd, dy, residual, d.dx,
                                  dweight ? d.dweight : NULL);
    }
    return (norm_results){.y = check_from_device(bytes, d.y),
                          .dx = check_from_device(bytes, d.dx),
                          .mean = check_from_device(row_bytes, d.mean),
                          .rstd = check_from_device(row_bytes, d.rstd),
                          .dweight = check_from_device(column_bytes, d.dweight),
                          .dbias = check_from_device(column_bytes, d.dbias)};
}

static norm_results plain_results(const norm_case *n) {
    norm_results r = {check_floats(n->count), check_floats(n->count),   check_floats(n->rows),
                      check_floats(n->rows),  check_floats(n->columns), check_floats(n->columns)};
    if (n->centred) {
        shd_reference_layernorm_f32(n->rows, n->columns, eps, n->x, n->weight, n->bias, r.y, r.mean, r.rstd);
        shd_reference_layernorm_backward_f32(n->rows, n->columns, n->x, n->weight, r.mean, r.rstd, n->dy, n->residual,
                                             r.dx, r.dweight, r.dbias);
    } else {
        shd_reference_rmsnorm_f32(n->rows, n->columns, eps, n->x, n->weight, r.y, r.rstd);
        shd_reference_rmsnorm_backward_f32(n->rows, n->columns, n->x, n->weight, r.rstd, n->dy, n->residual, r.dx,
                                           r.dweight);
    }
    return r;
}

typedef struct norm_exact {
    double *y, *dx, *mean, *rstd, *dweight, *dbias;
} norm_exact;

static norm_exact exact_results(const norm_case *n) {
    norm_exact r = {check_doubles(n->count), check_doubles(n->count),   check_doubles(n->rows),
                    check_doubles(n->rows),  check_doubles(n->columns), check_doubles(n->columns)};
    const double *x = check_widen(n->count, n->x), *weight = check_widen(n->columns, n->weight);
    const double *bias = check_widen(n->columns, n->bias), *dy = check_widen(n->count, n->dy);
    const double *residual = n->residual ? check_widen(n->count, n->residual) : NULL;
    if (n->centred) {
        shd_reference_layernorm_f64(n->rows, n->columns, (double)eps, x, weight, bias, r.y, r.mean, r.rstd);
        shd_reference_layernorm_backward_f64(n->rows, n->columns, x, weight, r.mean, r.rstd, dy, residual, r.dx,
                                             r.dweight, r.dbias);
    } else {
        shd_reference_rmsnorm_f64(n->rows, n->columns, (double)eps, x, weight, r.y, r.rstd);
        shd_reference_rmsnorm_backward_f64(n->rows, n->columns, x, weight, r.rstd, dy, residual, r.dx, r.dweight);
    }
    return r;
}

static void try_case(const norm_case *n) {
    char what[120];
    snprintf(what, sizeof what, "%s %dx%d", n->centred ? "layernorm" : "rmsnorm", (int)n->rows, (int)n->columns);
    const norm_results plain = plain_results(n), fast = run(n, false, true, true);
    const norm_exact exact = exact_results(n);
    check_error(what, n->dtype, n->count, fast.y, plain.y, exact.y);
    check_error(what, SHERD_FP32, n->rows, fast.rstd, plain.rstd, exact.rstd);
    check_error(what, n->dtype, n->count, fast.dx, plain.dx, exact.dx);
    check_error(what, SHERD_FP32, n->columns, fast.dweight, plain.dweight, exact.dweight);
    if (!n->centred) return;
    check_error(what, SHERD_FP32, n->rows, fast.mean, plain.mean, exact.mean);
    check_error(what, SHERD_FP32, n->columns, fast.dbias, plain.dbias, exact.dbias);
}

/* A mean far from zero is where a careless variance fails; of a few rows its own rounding is most of the error, by luck. */
static void try_all(bool centred) {
    check_device_begin();
    for (int r = 0; r < 4; r++)
        for (int c = 0; c < COLUMN_KINDS; c++)
            for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++) {
                if (rows_tried[r] * columns_tried[c] > 64 * 1024 + 1) continue;
                const double offset = rows_tried[r] < 17 ? 1 : (r + c) % 3 * 10;
                const norm_case n = make_case(centred, dtype, rows_tried[r], columns_tried[c], offset, c % 2);
                try_case(&n);
                check_device_next();
            }
    check_device_end();
}

Test(cuda_norm, layernorm_errs_at_most_twice_as_much_as_the_plain_reference) { try_all(true); }

Test(cuda_norm, rmsnorm_errs_at_most_twice_as_much_as_the_plain_reference) { try_all(false); }

/* Sums over many rows are cut into chunks: their errors, and the same bits each time. */
Test(cuda_norm, gradients_of_many_rows_have_the_same_bits_each_time) {
    check_device_begin();
    for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++) {
        const norm_case n = make_case(true, dtype, 1100, 40, 1, true);
        try_case(&n);
        const norm_results first = run(&n, false, true, true), second = run(&n, false, true, true);
        check_same_bits("dweight", n.columns * 4, first.dweight, second.dweight);
        check_same_bits("dbias", n.columns * 4, first.dbias, second.dbias);
        check_device_next();
    }
    check_device_end();
}

Test(cuda_norm, dx_may_overwrite_the_residual_and_gradients_may_be_left_out) {
    check_device_begin();
    for (int centred = 0; centred < 2; centred++)
        for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++) {
            const norm_case n = make_case(centred, dtype, 33, 264, 0, true);
            const int64_t bytes = n.count * shd_dtype_bytes(dtype);
            const norm_results apart = run(&n, false, true, true), shared = run(&n, true, true, true);
            const norm_results bias = run(&n, true, false, true), weight = run(&n, true, true, false);
            const norm_results neither = run(&n, true, false, false);
            check_same_bits("dx", bytes, apart.dx, shared.dx);
            check_same_bits("dx", bytes, apart.dx, bias.dx);
            check_same_bits("dx", bytes, apart.dx, weight.dx);
            check_same_bits("dx", bytes, apart.dx, neither.dx);
            check_same_bits("dweight", n.columns * 4, apart.dweight, weight.dweight);
            check_same_bits("dbias", n.columns * 4, apart.dbias, bias.dbias);
            check_device_next();
        }
    check_device_end();
}

Test(cuda_norm, gradients_of_no_rows_are_zero) {
    check_device_begin();
    const norm_case n = make_case(true, SHERD_BF16, 0, 48, 0, true);
    const norm_results results = run(&n, false, true, true);
    for (int j = 0; j < 48; j++) cr_assert(results.dweight[j] == 0 && results.dbias[j] == 0);
    check_device_end();
}
