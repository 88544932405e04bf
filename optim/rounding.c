#include "optim/rounding.h"

#include "optim/update_kernels.h"
#include "runtime/base/cut.h"

typedef struct rounding {
    shd_round_fn run;
    const float *from;
    uint16_t *to;
    int64_t count;
} rounding;

static void round_span(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const rounding *task = argument;
    int64_t count, first = shd_cut(task->count, SHD_SPAN, index, &count);
    task->run(task->from + first, task->to + first, count);
}

void shd_round_span(shd_pool *pool, sherd_dtype dtype, int64_t count, const float *from, void *to) {
    if (count == 0) return;
    rounding task = {.run = shd_optim_round(shd_optim_kernels_best(), dtype), .from = from, .to = to, .count = count};
    shd_pool_run(pool, round_span, &task, shd_div_ceil(count, SHD_SPAN));
}
