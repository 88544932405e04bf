#include "optim/whole.h"

#include "optim/whole_kernels.h"
#include "optim/whole_parts.h"
#include "runtime/base/cut.h"

#include <assert.h>

int64_t shd_tensor_elements(const sherd_tensor *tensor) {
    int64_t count = 1;
    for (int32_t i = 0; i < tensor->dim_count; i++) count *= tensor->shape[i];
    return count;
}

/* --- states ------------------------------------------------------------------------------------------------------- */

enum { ROW_VARIANCE, COLUMN_VARIANCE, VARIANCE };

int32_t shd_whole_state_count(const sherd_optimizer *optimizer) {
    switch (optimizer->kind) {
    case SHERD_MUON: return optimizer->momentum > 0;
    case SHERD_ADAFACTOR: return 3;
    default: return 0;
    }
}

const char *shd_whole_state_name(const sherd_optimizer *optimizer, int32_t index) {
    static const char *const names[] = {"row_variance", "column_variance", "variance"};
    assert(index >= 0 && index < shd_whole_state_count(optimizer));
    return optimizer->kind == SHERD_MUON ? "momentum" : names[index];
}

int64_t shd_whole_state_elements(const sherd_optimizer *optimizer, const sherd_tensor *tensor, int32_t index) {
    if (index >= shd_whole_state_count(optimizer)) return 0;
    int64_t elements = shd_tensor_elements(tensor);
    if (optimizer->kind == SHERD_MUON || elements == 0) return elements;
    if (tensor->dim_count < 2) return index == VARIANCE ? elements : 0;
    const shd_matrices matrices = shd_tensor_matrices(tensor);
    switch (index) {
    case ROW_VARIANCE: return matrices.count * matrices.rows;
    case COLUMN_VARIANCE: return matrices.count * matrices.columns;
    default: return 0;
    }
}

int64_t shd_whole_work_bytes(const sherd_optimizer *optimizer, const sherd_tensor *tensor) {
    if (shd_tensor_elements(tensor) == 0) return 0;
    return optimizer->kind == SHERD_MUON ? shd_muon_work_bytes(tensor) : shd_adafactor_work_bytes(tensor);
}

bool shd_whole_reads_parameters(const sherd_optimizer *optimizer) { return optimizer->kind == SHERD_ADAFACTOR; }

/* --- steps -------------------------------------------------------------------------------------------------------- */

void shd_whole_make_step(const sherd_optimizer *optimizer, shd_pool *pool, const shd_whole_step *step) {
    if (shd_tensor_elements(step->tensor) == 0) return;
    if (optimizer->kind == SHERD_MUON)
        shd_muon_make_step(optimizer, pool, step);
    else
        shd_adafactor_make_step(optimizer, pool, step);
}

/* A pass over elements, each on its own. */
typedef struct pass_task {
    const shd_whole_kernels *kernels;
    float factor;
    const float *from;
    float *to;
    int64_t count;
} pass_task;

static void run_pass(shd_pool *pool, shd_task_fn task, pass_task *pass) {
    pass->kernels = shd_whole_kernels_best();
    shd_pool_run(pool, task, pass, shd_div_ceil(pass->count, SHD_SPAN));
}

static void scale_span(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const pass_task *pass = argument;
    int64_t count, first = shd_cut(pass->count, SHD_SPAN, index, &count);
    pass->kernels->scale(pass->factor, pass->from + first, pass->to + first, count);
}

void shd_whole_scale(shd_pool *pool, float factor, const float *values, float *out, int64_t count) {
    run_pass(pool, scale_span, &(pass_task){.factor = factor, .from = values, .to = out, .count = count});
}

static void take_span(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const pass_task *pass = argument;
    int64_t count, first = shd_cut(pass->count, SHD_SPAN, index, &count);
    pass->kernels->take(pass->factor, pass->to + first, pass->from + first, count);
}

void shd_whole_take(shd_pool *pool, float *parameters, const float *steps, int64_t count, double lr,
                    double weight_decay) {
    run_pass(pool, take_span,
             &(pass_task){.factor = (float)(1 - lr * weight_decay), .from = steps, .to = parameters, .count = count});
}

typedef struct square_task {
    pass_task pass;
    double *partials;
} square_task;

static void square_span(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const square_task *task = argument;
    int64_t count, first = shd_cut(task->pass.count, SHD_SPAN, index, &count);
    task->partials[index] = task->pass.kernels->square_sum(task->pass.from + first, count);
}

double shd_whole_square_sum(shd_pool *pool, const float *values, int64_t count, void *work) {
    square_task task = {.pass = {.from = values, .count = count}, .partials = work};
    run_pass(pool, square_span, &task.pass);
    double sum = 0;
    for (int64_t i = 0; i < shd_div_ceil(count, SHD_SPAN); i++) sum += task.partials[i];
    return sum;
}
