#include "session/toy_later.h"

#include "runtime/base/dtype.h"
#include "tests/softcuda/softcuda.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_ACCESSES = 2 * TOY_TENSORS + 8 };

typedef struct later_work {
    toy_work work;
    const void *parameters[TOY_TENSORS];
    float *gradients[TOY_TENSORS];
    void *outputs[TOY_UNITS], *activations[TOY_UNITS], *remade[TOY_UNITS];
    atomic_int *line; /* of the first expectation that failed */
} later_work;

static softcuda_progress run_later(void *state) {
    later_work *later = state;
    int none = 0, line = toy_do(&later->work);
    if (line) atomic_compare_exchange_strong(later->line, &none, line);
    return SOFTCUDA_DONE;
}

static void add(softcuda_access *all, size_t *count, const void *memory, int64_t bytes, bool writes) {
    if (memory && bytes > 0)
        all[(*count)++] = (softcuda_access){.memory = memory, .bytes = (size_t)bytes, .writes = writes};
}

static size_t list_accesses(const later_work *later, softcuda_access *all) {
    const sherd_view *view = &later->work.view;
    const sherd_unit *unit = &toy_model()->units[view->unit];
    const bool makes = !later->work.backward;
    size_t count = 0;
    for (int32_t t = 0; t < TOY_TENSORS; t++) {
        add(all, &count, later->parameters[t], toy_count(t) * shd_dtype_bytes(later->work.before->precision), false);
        add(all, &count, later->gradients[t], toy_count(t) * (int64_t)sizeof(float), true);
    }
    add(all, &count, later->outputs[view->unit], unit->output_bytes, makes && !view->again);
    add(all, &count, later->activations[view->unit], unit->activation_bytes, makes && !view->part_again);
    add(all, &count, later->remade[view->unit], unit->remade_bytes, makes);
    add(all, &count, view->scratch, toy_model()->scratch_bytes, true);
    return count;
}

int toy_enqueue(const toy_work *work, void *line) {
    later_work *later = calloc(1, sizeof *later);
    softcuda_access accesses[MOST_ACCESSES];
    later->work = *work;
    later->line = line;
    memcpy(later->parameters, work->view.parameters, sizeof later->parameters);
    memcpy(later->gradients, work->view.gradients, sizeof later->gradients);
    memcpy(later->outputs, work->view.outputs, sizeof later->outputs);
    memcpy(later->activations, work->view.activations, sizeof later->activations);
    memcpy(later->remade, work->view.remade, sizeof later->remade);
    later->work.view.parameters = later->parameters;
    later->work.view.gradients = later->gradients;
    later->work.view.outputs = later->outputs;
    later->work.view.activations = later->activations;
    later->work.view.remade = later->remade;
    softcuda_operation operation = {.name = work->backward ? "toy backward" : "toy forward",
                                    .run = run_later,
                                    .drop = free,
                                    .state = later,
                                    .accesses = accesses,
                                    .access_count = list_accesses(later, accesses),
                                    .is_instrumented = true};
    return softcuda_enqueue(work->view.stream, &operation) == cudaSuccess ? 0 : __LINE__;
}
