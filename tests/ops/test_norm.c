#include "runtime/ops/ops.h"
#include "runtime/ops/reference.h"

#include "check.h"
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

typedef struct shape {
    int64_t rows, columns;
    double offset; /* added to x: a mean far from zero is where a careless variance fails */
} shape;

static const shape shapes[] = {{0, 5, 0},     {1, 1, 0},     {1, 17, 0},    {17, 1, 3},   {5, 16, 1},    {33, 257, 0},
                               {17, 257, 50}, {129, 40, -4}, {3, 2048, 10}, {300, 96, 0}, {2, 20000, 1}, {70, 385, 2}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Everything a norm reads and writes, in one type; `plain` and `exact` run the reference, `fast` a pool. */
typedef struct operands {
    int64_t rows, columns;
    float *x, *weight, *bias, *dy, *residual;
    float *y, *mean, *rstd, *dx, *dweight, *dbias;
} operands;
typedef struct operands_f64 {
    int64_t rows, columns;
    double *x, *weight, *bias, *dy, *residual;
    double *y, *mean, *rstd, *dx, *dweight, *dbias;
} operands_f64;

static operands make_inputs(const shape *s) {
    const int64_t count = s->rows * s->columns;
    operands o = {.rows = s->rows, .columns = s->columns};
    o.x = check_random(count, 1, 1);
    for (int64_t i = 0; i < count; i++) o.x[i] += (float)s->offset;
    o.weight = check_random(s->columns, 2, 1);
    o.bias = check_random(s->columns, 3, 1);
    o.dy = check_random(count, 4, 1);
    o.residual = check_random(count, 5, 1);
    return o;
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

static void layernorm_fast(const shd_math *p, operands *o) {
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
static void rmsnorm_fast(const shd_math *p, operands *o) {
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
    void (*fast)(const shd_math *math, operands *o);
    void (*plain)(operands *o);
    void (*exact)(operands_f64 *o);
} operation;
static const operation operations[] = {{"layernorm", true, layernorm_fast, layernorm_plain, layernorm_exact},
                                       {"rmsnorm", false, rmsnorm_fast, rmsnorm_plain, rmsnorm_exact}};

static void try_shape(const operation *n, const shape *s, bool with_residual) {
    char what[120];
    snprintf(what, sizeof what, "%s %dx%d", n->name, (int)s->rows, (int)s->columns);
    const int64_t count = s->rows * s->columns;
    operands inputs = make_inputs(s);
    if (!with_residual) inputs.residual = NULL;
    operands plain = with_outputs(inputs), fast[CHECK_POOLS];
    operands_f64 exact = widen(&(operands){inputs.rows, inputs.columns, inputs.x, inputs.weight, inputs.bias, inputs.dy,
                                           inputs.residual ? inputs.residual : inputs.x});
    if (!with_residual) exact.residual = NULL;
    n->plain(&plain);
    n->exact(&exact);
    for (int p = 0; p < CHECK_POOLS; p++) {
        fast[p] = with_outputs(inputs);
        n->fast(&check_maths[p], &fast[p]);
        check_same_bits(what, count * 4, fast[0].y, fast[p].y);
        check_same_bits(what, count * 4, fast[0].dx, fast[p].dx);
        check_same_bits(what, s->columns * 4, fast[0].dweight, fast[p].dweight);
        check_same_bits(what, s->columns * 4, fast[0].dbias, fast[p].dbias);
    }
    check_error(what, count, fast[0].y, plain.y, exact.y);
    check_error(what, s->rows, fast[0].rstd, plain.rstd, exact.rstd);
    check_error(what, count, fast[0].dx, plain.dx, exact.dx);
    check_error(what, s->columns, fast[0].dweight, plain.dweight, exact.dweight);
    if (!n->centred) return;
    check_error(what, s->rows, fast[0].mean, plain.mean, exact.mean);
    check_error(what, s->columns, fast[0].dbias, plain.dbias, exact.dbias);
}

Test(norm, errors_are_at_most_twice_the_plain_references) {
    for (int n = 0; n < 2; n++)
        for (int s = 0; s < SHAPES; s++)
            for (int with_residual = 0; with_residual < 2; with_residual++) {
                check_begin();
                try_shape(&operations[n], &shapes[s], with_residual);
                check_end();
            }
}

Test(norm, dx_may_overwrite_the_residual) {
    check_begin();
    for (int n = 0; n < 2; n++) {
        operands inputs = make_inputs(&(shape){33, 257, 0});
        operands apart = with_outputs(inputs), shared = with_outputs(inputs);
        operations[n].fast(&check_maths[1], &apart);
        shared.dx = shared.residual;
        operations[n].fast(&check_maths[1], &shared);
        check_same_bits(operations[n].name, 33 * 257 * 4, apart.dx, shared.dx);
    }
    check_end();
}

Test(norm, weight_gradients_can_be_left_out) {
    check_begin();
    operands o = with_outputs(make_inputs(&(shape){33, 257, 0})), p = with_outputs(o);
    layernorm_fast(&check_maths[1], &o);
    shd_op_layernorm_backward(&check_maths[1], 33, 257, o.x, o.weight, o.mean, o.rstd, o.dy, o.residual, p.dx, NULL,
                              p.dbias);
    check_same_bits("dx", 33 * 257 * 4, o.dx, p.dx);
    check_same_bits("dbias", 257 * 4, o.dbias, p.dbias);
    shd_op_layernorm_backward(&check_maths[1], 33, 257, o.x, o.weight, o.mean, o.rstd, o.dy, o.residual, p.dx,
                              p.dweight, NULL);
    check_same_bits("dweight", 257 * 4, o.dweight, p.dweight);
    memset(p.dx, 0, 33 * 257 * 4);
    shd_op_layernorm_backward(&check_maths[1], 33, 257, o.x, o.weight, o.mean, o.rstd, o.dy, o.residual, p.dx, NULL,
                              NULL);
    check_same_bits("dx alone", 33 * 257 * 4, o.dx, p.dx);
    rmsnorm_fast(&check_maths[1], &o);
    shd_op_rmsnorm_backward(&check_maths[1], 33, 257, o.x, o.weight, o.rstd, o.dy, o.residual, p.dx, NULL);
    check_same_bits("rmsnorm dx", 33 * 257 * 4, o.dx, p.dx);
    check_end();
}

Test(norm, column_sums_are_the_plain_sums_to_the_bit) {
    for (int s = 0; s < SHAPES; s++) {
        const int64_t rows = shapes[s].rows, columns = shapes[s].columns;
        check_begin();
        float *x = check_random(rows * columns, 1, 1), *plain = check_floats(columns);
        shd_reference_column_sum_f32(rows, columns, x, plain);
        for (int p = 0; p < CHECK_POOLS; p++) {
            float *sum = check_floats(columns);
            shd_op_column_sum(&check_maths[p], rows, columns, x, sum);
            check_same_bits("column sum", columns * 4, plain, sum);
        }
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
    operands inputs = make_inputs(&(shape){7, 19, 1});
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
