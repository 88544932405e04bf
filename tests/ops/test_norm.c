#include "runtime/base/dtype.h"
#include "runtime/ops/ops.h"
#include "runtime/ops/reference.h"

#include "check.h"
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct shape {
    int64_t rows, columns;
    double offset; /* added to x: a mean far from zero is where a careless variance fails */
} shape;

static const shape shapes[] = {{0, 5, 0},     {1, 1, 0},     {1, 17, 0},    {17, 1, 3},   {5, 16, 1},    {33, 257, 0},
                               {17, 257, 50}, {129, 40, -4}, {3, 2048, 10}, {300, 96, 0}, {2, 20000, 1}, {70, 385, 2}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Everything a norm reads and writes: `plain` and `exact` run the reference, `fast` an operation on what is stored. */
typedef struct operands {
    int64_t rows, columns;
    float *x, *weight, *bias, *dy, *residual;
    float *y, *mean, *rstd, *dx, *dweight, *dbias;
} operands;
typedef struct operands_stored {
    int64_t rows, columns;
    void *x, *weight, *bias, *dy, *residual, *y, *dx;
    float *mean, *rstd, *dweight, *dbias;
} operands_stored;
typedef struct operands_f64 {
    int64_t rows, columns;
    double *x, *weight, *bias, *dy, *residual;
    double *y, *mean, *rstd, *dx, *dweight, *dbias;
} operands_f64;

/* Numbers that `dtype` holds. */
static operands make_inputs(sherd_dtype dtype, const shape *s) {
    const int64_t count = s->rows * s->columns;
    operands o = {.rows = s->rows, .columns = s->columns};
    float *x = check_random(count, 1, 1);
    for (int64_t i = 0; i < count; i++) x[i] += (float)s->offset;
    o.x = check_loaded(dtype, count, check_stored(dtype, count, x));
    o.weight = check_random_of(dtype, s->columns, 2, 1);
    o.bias = check_random_of(dtype, s->columns, 3, 1);
    o.dy = check_random_of(dtype, count, 4, 1);
    o.residual = check_random_of(dtype, count, 5, 1);
    return o;
}

static operands_stored store(sherd_dtype dtype, const operands *o) {
    const int64_t count = o->rows * o->columns, bytes = count * shd_dtype_bytes(dtype);
    return (operands_stored){.rows = o->rows,
                             .columns = o->columns,
                             .x = check_stored(dtype, count, o->x),
                             .weight = check_stored(dtype, o->columns, o->weight),
                             .bias = check_stored(dtype, o->columns, o->bias),
                             .dy = check_stored(dtype, count, o->dy),
                             .residual = check_stored(dtype, count, o->residual),
                             .y = check_memory(bytes),
                             .dx = check_memory(bytes),
                             .mean = check_floats(o->rows),
                             .rstd = check_floats(o->rows),
                             .dweight = check_floats(o->columns),
                             .dbias = check_floats(o->columns)};
}

static operands with_outputs(operands o) {
    const int64_t count = o.rows * o.columns;
    o.y = check_floats(count);
    o.mean = check_floats(o.rows);
    o.rstd = check_floats(o.rows);
    o.dx = check_floats(count);
    o.dweight = check_floats(o.columns);
    o.dbias = check_floats(o.columns);
    return o;
}

static operands_f64 widen(const operands *o) {
    const int64_t count = o->rows * o->columns;
    return (operands_f64){o->rows,
                          o->columns,
                          check_widen(count, o->x),
                          check_widen(o->columns, o->weight),
                          check_widen(o->columns, o->bias),
                          check_widen(count, o->dy),
                          check_widen(count, o->residual),
                          check_doubles(count),
                          check_doubles(o->rows),
                          check_doubles(o->rows),
                          check_doubles(count),
                          check_doubles(o->columns),
                          check_doubles(o->columns)};
}

static const double eps = 1e-5;

static void layernorm_fast(const shd_math *p, operands_stored *o) {
    shd_op_layernorm(p, o->rows, o->columns, (float)eps, o->x, o->weight, o->bias, o->y, o->mean, o->rstd);
    shd_op_layernorm_backward(p, o->rows, o->columns, o->x, o->weight, o->mean, o->rstd, o->dy, o->residual, o->dx,
                              o->dweight, o->dbias);
}
static void layernorm_plain(operands *o) {
    shd_reference_layernorm_f32(o->rows, o->columns, (float)eps, o->x, o->weight, o->bias, o->y, o->mean, o->rstd);
    shd_reference_layernorm_backward_f32(o->rows, o->columns, o->x, o->weight, o->mean, o->rstd, o->dy, o->residual,
                                         o->dx, o->dweight, o->dbias);
}
static void layernorm_exact(operands_f64 *o) {
    shd_reference_layernorm_f64(o->rows, o->columns, (double)(float)eps, o->x, o->weight, o->bias, o->y, o->mean,
                                o->rstd);
    shd_reference_layernorm_backward_f64(o->rows, o->columns, o->x, o->weight, o->mean, o->rstd, o->dy, o->residual,
                                         o->dx, o->dweight, o->dbias);
}
static void rmsnorm_fast(const shd_math *p, operands_stored *o) {
    shd_op_rmsnorm(p, o->rows, o->columns, (float)eps, o->x, o->weight, o->y, o->rstd);
    shd_op_rmsnorm_backward(p, o->rows, o->columns, o->x, o->weight, o->rstd, o->dy, o->residual, o->dx, o->dweight);
}
static void rmsnorm_plain(operands *o) {
    shd_reference_rmsnorm_f32(o->rows, o->columns, (float)eps, o->x, o->weight, o->y, o->rstd);
    shd_reference_rmsnorm_backward_f32(o->rows, o->columns, o->x, o->weight, o->rstd, o->dy, o->residual, o->dx,
                                       o->dweight);
}
static void rmsnorm_exact(operands_f64 *o) {
    shd_reference_rmsnorm_f64(o->rows, o->columns, (double)(float)eps, o->x, o->weight, o->y, o->rstd);
    shd_reference_rmsnorm_backward_f64(o->rows, o->columns, o->x, o->weight, o->rstd, o->dy, o->residual, o->dx,
                                       o->dweight);
}

typedef struct operation {
    const char *name;
    bool centred; /* has mean, bias and their gradients */
    void (*fast)(const shd_math *math, operands_stored *o);
    void (*plain)(operands *o);
    void (*exact)(operands_f64 *o);
} operation;
static const operation operations[] = {{"layernorm", true, layernorm_fast, layernorm_plain, layernorm_exact},
                                       {"rmsnorm", false, rmsnorm_fast, rmsnorm_plain, rmsnorm_exact}};

static void try_shape(const operation *n, sherd_dtype dtype, const shape *s, bool with_residual) {
    char what[120];
    snprintf(what, sizeof what, "%s %dx%d", n->name, (int)s->rows, (int)s->columns);
    const int64_t count = s->rows * s->columns, bytes = count * shd_dtype_bytes(dtype);
    operands inputs = make_inputs(dtype, s);
    if (!with_residual) inputs.residual = NULL;
    operands plain = with_outputs(inputs);
    operands_stored fast[CHECK_POOLS];
    operands_f64 exact = widen(&(operands){inputs.rows, inputs.columns, inputs.x, inputs.weight, inputs.bias, inputs.dy,
                                           inputs.residual ? inputs.residual : inputs.x});
    if (!with_residual) exact.residual = NULL;
    n->plain(&plain);
    n->exact(&exact);
    for (int p = 0; p < CHECK_POOLS; p++) {
        fast[p] = store(dtype, &inputs);
        n->fast(&check_maths[dtype][p], &fast[p]);
        check_same_bits(what, bytes, fast[0].y, fast[p].y);
        check_same_bits(what, bytes, fast[0].dx, fast[p].dx);
        check_same_bits(what, s->columns * 4, fast[0].dweight, fast[p].dweight);
        check_same_bits(what, s->columns * 4, fast[0].dbias, fast[p].dbias);
    }
    check_error(what, dtype, count, fast[0].y, plain.y, exact.y);
    check_error(what, SHERD_FP32, s->rows, fast[0].rstd, plain.rstd, exact.rstd);
    check_error(what, dtype, count, fast[0].dx, plain.dx, exact.dx);
    check_error(what, SHERD_FP32, s->columns, fast[0].dweight, plain.dweight, exact.dweight);
    if (!n->centred) return;
    check_error(what, SHERD_FP32, s->rows, fast[0].mean, plain.mean, exact.mean);
    check_error(what, SHERD_FP32, s->columns, fast[0].dbias, plain.dbias, exact.dbias);
}

Test(norm, errors_are_at_most_twice_the_plain_references) {
    for (int n = 0; n < 2; n++)
        for (int s = 0; s < SHAPES; s++)
            for (int with_residual = 0; with_residual < 2; with_residual++)
                for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++) {
                    check_begin();
                    try_shape(&operations[n], dtype, &shapes[s], with_residual);
                    check_end();
                }
}

Test(norm, dx_may_overwrite_the_residual) {
    check_begin();
    for (int n = 0; n < 2; n++)
        for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++) {
            const operands inputs = make_inputs(dtype, &(shape){33, 257, 0});
            operands_stored apart = store(dtype, &inputs), shared = store(dtype, &inputs);
            operations[n].fast(&check_maths[dtype][1], &apart);
            shared.dx = shared.residual;
            operations[n].fast(&check_maths[dtype][1], &shared);
            check_same_bits(operations[n].name, 33 * 257 * shd_dtype_bytes(dtype), apart.dx, shared.dx);
        }
    check_end();
}

static void leave_out(sherd_dtype dtype) {
    const shd_math *math = &check_maths[dtype][1];
    const int64_t bytes = 33 * 257 * shd_dtype_bytes(dtype);
    const operands inputs = make_inputs(dtype, &(shape){33, 257, 0});
    operands_stored o = store(dtype, &inputs), p = store(dtype, &inputs);
    layernorm_fast(math, &o);
    shd_op_layernorm_backward(math, 33, 257, o.x, o.weight, o.mean, o.rstd, o.dy, o.residual, p.dx, NULL, p.dbias);
    check_same_bits("dx", bytes, o.dx, p.dx);
    check_same_bits("dbias", 257 * 4, o.dbias, p.dbias);
    shd_op_layernorm_backward(math, 33, 257, o.x, o.weight, o.mean, o.rstd, o.dy, o.residual, p.dx, p.dweight, NULL);
    check_same_bits("dweight", 257 * 4, o.dweight, p.dweight);
    memset(p.dx, 0, (size_t)bytes);
    shd_op_layernorm_backward(math, 33, 257, o.x, o.weight, o.mean, o.rstd, o.dy, o.residual, p.dx, NULL, NULL);
    check_same_bits("dx alone", bytes, o.dx, p.dx);
    rmsnorm_fast(math, &o);
    shd_op_rmsnorm_backward(math, 33, 257, o.x, o.weight, o.rstd, o.dy, o.residual, p.dx, NULL);
    check_same_bits("rmsnorm dx", bytes, o.dx, p.dx);
}

Test(norm, weight_gradients_can_be_left_out) {
    check_begin();
    for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++) leave_out(dtype);
    check_end();
}

Test(norm, column_sums_are_the_plain_sums_to_the_bit) {
    for (int s = 0; s < SHAPES; s++)
        for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++) {
            const int64_t rows = shapes[s].rows, columns = shapes[s].columns;
            check_begin();
            float *x = check_random_of(dtype, rows * columns, 1, 1), *plain = check_floats(columns);
            shd_reference_column_sum_f32(rows, columns, x, plain);
            for (int p = 0; p < CHECK_POOLS; p++) {
                float *sum = check_floats(columns);
                shd_op_column_sum(&check_maths[dtype][p], rows, columns, check_stored(dtype, rows * columns, x), sum);
                check_same_bits("column sum", columns * 4, plain, sum);
            }
            check_end();
        }
}

/* One number that is none, or infinite, spoils its row; the rows around it stay. */
Test(norm, infinity_and_nan_show_in_every_type) {
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++)
        for (int n = 0; n < 2; n++)
            for (int b = 0; b < 6; b++) {
                check_begin();
                operands inputs = make_inputs(dtype, &(shape){3, 35, 0});
                (b < 3 ? inputs.x : inputs.dy)[35 + 34] = bad[b % 3];
                operands_stored o = store(dtype, &inputs);
                operations[n].fast(&check_maths[dtype][0], &o);
                const float *y = check_loaded(dtype, 3 * 35, o.y), *dx = check_loaded(dtype, 3 * 35, o.dx);
                cr_assert(isfinite(y[0]) && isfinite(dx[0]) && isfinite(y[70]) && isfinite(dx[70]));
                cr_assert(b >= 3 || !isfinite(y[35 + 34]), "%s: %g does not show", operations[n].name, (double)bad[b]);
                cr_assert(!isfinite(dx[35 + 34]) && !isfinite(o.dweight[34]));
                check_end();
            }
}

static double layernorm_loss(void *context) {
    operands_f64 *o = context;
    shd_reference_layernorm_f64(o->rows, o->columns, eps, o->x, o->weight, o->bias, o->y, o->mean, o->rstd);
    return check_dot(o->rows * o->columns, o->dy, o->y);
}

static double rmsnorm_loss(void *context) {
    operands_f64 *o = context;
    shd_reference_rmsnorm_f64(o->rows, o->columns, eps, o->x, o->weight, o->y, o->rstd);
    return check_dot(o->rows * o->columns, o->dy, o->y);
}

Test(norm, reference_gradients_are_the_derivatives) {
    check_begin();
    operands inputs = make_inputs(SHERD_FP32, &(shape){7, 19, 1});
    for (int n = 0; n < 2; n++) {
        double (*loss)(void *) = n ? rmsnorm_loss : layernorm_loss;
        operands_f64 o = widen(&inputs);
        o.residual = NULL;
        operations[n].exact(&o);
        double *dx = o.dx;
        o.dx = check_doubles(7 * 19);
        check_gradient(operations[n].name, 7 * 19, o.x, dx, loss, &o);
        check_gradient(operations[n].name, 19, o.weight, o.dweight, loss, &o);
        if (operations[n].centred) check_gradient(operations[n].name, 19, o.bias, o.dbias, loss, &o);
    }
    check_end();
}
