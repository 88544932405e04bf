/* Adafactor's step for one tensor. Of a matrix's second moments only the means of rows and columns are kept.
 *
 * Rows are counted through all matrices of the tensor; a task has some whole ones, or some columns of one matrix. */
#include "optim/whole_kernels.h"
#include "optim/whole_parts.h"
#include "runtime/base/cut.h"

#include <float.h>
#include <math.h>

/* What PyTorch calls eps1; its square bounds second moments from below. */
static const double epsilon = FLT_EPSILON;

enum { COLUMN_BLOCK = 64 };

typedef struct factoring {
    const shd_whole_kernels *kernels;
    const shd_whole_step *step;
    shd_matrices matrices;
    int64_t task_rows; /* of a task */
    int64_t count;
    double weight;
    double *means;    /* [matrices]: of the row variances */
    double *partials; /* [tasks]: Σ U² */
} factoring;

static int64_t rows_of_task(const sherd_tensor *tensor) {
    return shd_rows_per_task(tensor->shape[tensor->dim_count - 1]);
}

int64_t shd_adafactor_work_bytes(const sherd_tensor *tensor) {
    int64_t spans = shd_div_ceil(shd_tensor_elements(tensor), SHD_SPAN), doubles = spans;
    if (tensor->dim_count >= 2) {
        const shd_matrices matrices = shd_tensor_matrices(tensor);
        int64_t tasks = shd_div_ceil(matrices.count * matrices.rows, rows_of_task(tensor));
        doubles = shd_max(spans, matrices.count + tasks);
    }
    return doubles * (int64_t)sizeof(double);
}

static float blend(double weight, float before, double now) {
    return (float)((double)before + weight * (now - (double)before));
}

/* --- matrices ----------------------------------------------------------------------------------------------------- */

/* The rows of task `index`: the first one, and how many. */
static int64_t task_rows(const factoring *f, int64_t index, int64_t *count) {
    return shd_cut(f->matrices.count * f->matrices.rows, f->task_rows, index, count);
}

/* Scales the gradient, and moves the row means. */
static void observe_rows(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const factoring *f = argument;
    int64_t count, first = task_rows(f, index, &count), columns = f->matrices.columns;
    float *row_variances = f->step->states[0];
    for (int64_t row = first; row < first + count; row++) {
        float *values = f->step->values + row * columns;
        f->kernels->scale(f->step->gradient_scale, values, values, columns);
        double mean = f->kernels->square_sum(values, columns) / (double)columns;
        row_variances[row] = blend(f->weight, row_variances[row], mean);
    }
}

static void observe_columns(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const factoring *f = argument;
    int64_t rows = f->matrices.rows, columns = f->matrices.columns, blocks = shd_div_ceil(columns, COLUMN_BLOCK);
    int64_t matrix = index / blocks, first = index % blocks * COLUMN_BLOCK;
    int64_t count = shd_min(COLUMN_BLOCK, columns - first);
    double sums[COLUMN_BLOCK] = {0};
    f->kernels->column_square_sums(f->step->values + matrix * rows * columns + first, rows, columns, count, sums);
    float *column_variances = f->step->states[1] + matrix * columns + first;
    for (int64_t i = 0; i < count; i++)
        column_variances[i] = blend(f->weight, column_variances[i], sums[i] / (double)rows);
}

static void find_means(const factoring *f) {
    const float *row_variances = f->step->states[0];
    for (int64_t matrix = 0; matrix < f->matrices.count; matrix++) {
        double sum = 0;
        for (int64_t row = 0; row < f->matrices.rows; row++) sum += (double)*row_variances++;
        f->means[matrix] = shd_whole_at_least(epsilon, sum / (double)f->matrices.rows);
    }
}

static void precondition_rows(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const factoring *f = argument;
    int64_t count, first = task_rows(f, index, &count), columns = f->matrices.columns;
    double sum = 0;
    for (int64_t row = first; row < first + count; row++) {
        float *values = f->step->values + row * columns;
        int64_t matrix = row / f->matrices.rows;
        f->kernels->precondition((float)((double)f->step->states[0][row] / f->means[matrix]),
                                 f->step->states[1] + matrix * columns, (float)(epsilon * epsilon), values, columns);
        sum += f->kernels->square_sum(values, columns);
    }
    f->partials[index] = sum;
}

/* The gradient becomes U; returns Σ U². */
static double precondition_matrices(factoring *f, shd_pool *pool) {
    const sherd_tensor *tensor = f->step->tensor;
    f->matrices = shd_tensor_matrices(tensor);
    f->task_rows = rows_of_task(tensor);
    f->means = f->step->work;
    f->partials = f->means + f->matrices.count;
    int64_t tasks = shd_div_ceil(f->matrices.count * f->matrices.rows, f->task_rows);
    shd_pool_run(pool, observe_rows, f, tasks);
    shd_pool_run(pool, observe_columns, f, f->matrices.count * shd_div_ceil(f->matrices.columns, COLUMN_BLOCK));
    find_means(f);
    shd_pool_run(pool, precondition_rows, f, tasks);
    double sum = 0;
    for (int64_t i = 0; i < tasks; i++) sum += f->partials[i];
    return sum;
}

/* --- other tensors ------------------------------------------------------------------------------------------------ */

static void precondition_span(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const factoring *f = argument;
    int64_t count, first = shd_cut(f->count, SHD_SPAN, index, &count);
    float *values = f->step->values + first;
    f->kernels->scale(f->step->gradient_scale, values, values, count);
    f->kernels->precondition_elements((float)f->weight, (float)(epsilon * epsilon), f->step->states[2] + first, values,
                                      count);
}

static double precondition_elements(factoring *f, shd_pool *pool) {
    shd_pool_run(pool, precondition_span, f, shd_div_ceil(f->count, SHD_SPAN));
    return shd_whole_square_sum(pool, f->step->values, f->count, f->step->work);
}

void shd_adafactor_make_step(const sherd_optimizer *optimizer, shd_pool *pool, const shd_whole_step *step) {
    double updates = (double)step->step + 1, count = (double)shd_tensor_elements(step->tensor);
    factoring f = {.kernels = shd_whole_kernels_best(),
                   .step = step,
                   .count = shd_tensor_elements(step->tensor),
                   .weight = pow(updates, optimizer->beta2_decay)};
    double square_sum =
        step->tensor->dim_count >= 2 ? precondition_matrices(&f, pool) : precondition_elements(&f, pool);
    double rate =
        fmin(step->lr, 1 / sqrt(updates)) * shd_whole_at_least(optimizer->scale_floor, sqrt(step->square_sum / count));
    double excess = shd_whole_at_least(1, sqrt(square_sum / count) / optimizer->update_clip);
    shd_whole_scale(pool, (float)(rate / excess), step->values, step->values, f.count);
}
