#include "tests/optim/whole_run.h"

#include <stdlib.h>
#include <string.h>

static void *zeroed(int64_t bytes) {
    size_t room = ((size_t)bytes + 64) / 64 * 64;
    void *memory = aligned_alloc(64, room);
    if (!memory) abort();
    return memset(memory, 0, room);
}

whole_run whole_run_make(const sherd_optimizer *optimizer, const sherd_tensor *tensor) {
    whole_run run = {.tensor = tensor, .count = shd_tensor_elements(tensor)};
    run.p = zeroed(4 * run.count);
    run.g = zeroed(4 * run.count);
    for (int32_t s = 0; s < SHD_WHOLE_STATES_MAX; s++) {
        int64_t count = shd_whole_state_elements(optimizer, tensor, s);
        run.states[s] = count > 0 ? zeroed(4 * count) : NULL;
    }
    run.work = zeroed(shd_whole_work_bytes(optimizer, tensor));
    memset(run.work, 0x7f, (size_t)shd_whole_work_bytes(optimizer, tensor));
    return run;
}

void whole_run_free(whole_run *run) {
    free(run->p), free(run->g), free(run->work);
    for (int32_t s = 0; s < SHD_WHOLE_STATES_MAX; s++) free(run->states[s]);
}

static float element(bool transposed, const float *matrix, int64_t rows, int64_t columns, int64_t i, int64_t j) {
    return transposed ? matrix[j * rows + i] : matrix[i * columns + j];
}

/* Products with sums in double, rounded once. */
static void multiply(shd_pool *pool, const shd_product *p) {
    (void)pool;
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            double sum = p->accumulate ? (double)p->c[i * p->n + j] : 0;
            for (int64_t k = 0; k < p->k; k++)
                sum += (double)element(p->a_transposed, p->a, p->m, p->k, i, k) *
                       (double)element(p->b_transposed, p->b, p->k, p->n, k, j);
            p->c[i * p->n + j] = (float)sum;
        }
}

void whole_run_update(whole_run *run, const sherd_optimizer *optimizer, shd_pool *pool, int64_t step, double lr,
                      double weight_decay, float gradient_scale) {
    shd_whole_step made = {.tensor = run->tensor,
                           .values = run->g,
                           .work = run->work,
                           .step = step,
                           .lr = lr,
                           .gradient_scale = gradient_scale,
                           .multiply = multiply};
    memcpy(made.states, run->states, sizeof made.states);
    if (shd_whole_reads_parameters(optimizer))
        made.square_sum = shd_whole_square_sum(pool, run->p, run->count, run->work);
    shd_whole_make_step(optimizer, pool, &made);
    shd_whole_take(pool, run->p, run->g, run->count, lr, weight_decay);
}
