/* What is done to a model's outputs in fp32, row by row: biases, predictions, squared errors. */
#include "runtime/ops/ops.h"

#include "runtime/base/cut.h"
#include "runtime/base/dtype.h"
#include "runtime/ops/kernels/kernels.h"

#include <math.h>

/* One call's operands; the task knows which it has. */
typedef struct rowwise {
    const shd_kernels *kernels;
    sherd_dtype dtype;
    int64_t rows, columns;
    float *outputs;
    const void *bias;
    const int32_t *classes;
    const float *targets;
    float scale;
    bool gradient;
    double *results;
} rowwise;

static void run(const shd_math *math, shd_task_fn task, rowwise operands) {
    operands.kernels = shd_kernels_get(math->dtype);
    operands.dtype = math->dtype;
    shd_pool_run(math->pool, task, &operands, shd_div_ceil(operands.rows, shd_rows_per_task(operands.columns)));
}

/* The rows of piece `index`: the first, and how many in *count. */
static int64_t rows_of(const rowwise *r, int64_t index, int64_t *count) {
    return shd_cut(r->rows, shd_rows_per_task(r->columns), index, count);
}

static void add_bias_task(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const rowwise *r = argument;
    int64_t count, first = rows_of(r, index, &count);
    for (int64_t i = first; i < first + count; i++)
        r->kernels->accumulate(r->columns, r->bias, r->outputs + i * r->columns);
}

void shd_op_add_bias(const shd_math *math, int64_t rows, int64_t columns, const void *bias, float *y) {
    run(math, add_bias_task, (rowwise){.rows = rows, .columns = columns, .outputs = y, .bias = bias});
}

static bool is_correct(const float *logits, int64_t classes, int32_t target) {
    if (target < 0) return false;
    /* Comparisons are such that a NaN is never the largest, nor beside one. */
    for (int64_t j = 0; j < classes; j++)
        if (!(j < target ? logits[j] < logits[target] : logits[j] <= logits[target])) return false;
    return true;
}

static void correct_task(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const rowwise *r = argument;
    int64_t count, first = rows_of(r, index, &count);
    for (int64_t i = first; i < first + count; i++)
        r->results[i] = is_correct(r->outputs + i * r->columns, r->columns, r->classes[i]);
}

void shd_op_correct(const shd_math *math, int64_t rows, int64_t classes, const float *logits, const int32_t *targets,
                    double *correct) {
    run(math, correct_task,
        (rowwise){.rows = rows,
                  .columns = classes,
                  .outputs = (float *)logits, /* only read */
                  .classes = targets,
                  .results = correct});
}

/* The gradient is written over its row in the math's type, no element of which reaches one that is still to be read. */
static void square_error_row(const rowwise *r, int64_t i) {
    float *outputs = r->outputs + i * r->columns;
    for (int64_t j = 0; j < r->columns; j++) {
        double target = (double)r->targets[i * r->columns + j];
        double error = isnan(target) ? 0 : (double)outputs[j] - target;
        r->results[i * r->columns + j] = error * error;
        float slope = (float)(2 * error * (double)r->scale);
        if (r->gradient) r->kernels->scale(1, 1.0f, &slope, shd_element(r->dtype, outputs, j));
    }
}

static void square_error_task(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const rowwise *r = argument;
    int64_t count, first = rows_of(r, index, &count);
    for (int64_t i = first; i < first + count; i++) square_error_row(r, i);
}

void shd_op_square_error(const shd_math *math, int64_t rows, int64_t columns, float *outputs, const float *targets,
                         float scale, bool gradient, double *loss) {
    run(math, square_error_task,
        (rowwise){.rows = rows,
                  .columns = columns,
                  .outputs = outputs,
                  .targets = targets,
                  .scale = scale,
                  .gradient = gradient,
                  .results = loss});
}
