/* Random models with all that is legal (units without tensors or elements, all frozen, shared by several, scalars)
 * train on any number of ranks, at every stage, as a brute-force trainer does, bit for bit. */
#include "support/ranks.h"
#include "tests/shard/models.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 12, STEPS = 2, SEEDS = 24 };
static const float lr = 0.125f;

static int64_t count_of(const sherd_tensor *tensor) {
    int64_t count = 1;
    for (int32_t i = 0; i < tensor->dim_count; i++) count *= tensor->shape[i];
    return count;
}

static int32_t unit_of(const model_box *box, int32_t tensor) {
    int32_t u = 0;
    while (tensor >= box->units[u].first_tensor + box->units[u].tensor_count) u++;
    return u;
}

static bool uses(const model_box *box, int32_t user, int32_t unit) {
    if (user == unit) return true;
    for (int32_t i = 0; i < box->units[user].share_count; i++)
        if (box->units[user].shares[i] == unit) return true;
    return false;
}

static sherd_status fill(void *user, int32_t tensor, int64_t first, int64_t count, float *values) {
    (void)user;
    for (int64_t i = 0; i < count; i++) values[i] = (float)(((first + i) * 37 + tensor * 11) % 101 - 50) / 64.0f;
    return SHERD_OK;
}

/* What unit `user` adds to a gradient: not dyadic, so that sums round and their order shows. */
static float gradient_of(int32_t tensor, int64_t i, int64_t sample, int32_t user, float parameter, float scale) {
    return ((float)((i * 7 + sample * 13 + user * 5 + tensor) % 23 - 11) / 7.0f + parameter / 2) * scale;
}

/* All parameters of the model, trained in one place. */
typedef struct oracle {
    float *parameters[MAX_UNITS * MAX_UNIT_TENSORS];
} oracle;

static void oracle_init(oracle *all, const model_box *box) {
    for (int32_t t = 0; t < box->model.tensor_count; t++) {
        int64_t count = count_of(&box->tensors[t]);
        all->parameters[t] = calloc((size_t)count + 1, sizeof(float));
        fill(NULL, t, 0, count, all->parameters[t]);
    }
}

static void oracle_fini(oracle *all, const model_box *box) {
    for (int32_t t = 0; t < box->model.tensor_count; t++) free(all->parameters[t]);
}

static void oracle_step(oracle *all, const model_box *box, int64_t first_sample) {
    const float scale = 1.0f / BATCH;
    for (int32_t t = 0; t < box->model.tensor_count; t++) {
        int32_t unit = unit_of(box, t);
        for (int64_t i = 0; i < count_of(&box->tensors[t]) && !box->tensors[t].frozen; i++) {
            float sum = 0;
            for (int64_t b = 0; b < BATCH; b++) {
                float own = 0;
                bool begun = false;
                for (int32_t user = box->model.unit_count - 1; user >= unit; user--) {
                    if (!uses(box, user, unit)) continue;
                    float value = gradient_of(t, i, first_sample + b, user, all->parameters[t][i], scale);
                    own = begun ? own + value : value;
                    begun = true;
                }
                sum = b ? sum + own : own;
            }
            all->parameters[t][i] -= lr * sum;
        }
    }
}

/* A forward fills what its unit has to leave; the second one finds the output, and of the activations what it need not
 * make; backward finds all. */
static int leave_marks(const model_box *box, const sherd_view *view, bool backward, int mark) {
    const sherd_unit *unit = &box->units[view->unit];
    struct {
        unsigned char *memory;
        int64_t bytes;
        bool kept;
    } areas[] = {{view->outputs[view->unit], unit->output_bytes, view->again},
                 {view->activations[view->unit], unit->activation_bytes, view->part_again},
                 {view->remade[view->unit], unit->remade_bytes, false}};
    for (int i = 0; i < 3; i++) {
        if (!backward && !areas[i].kept && areas[i].bytes > 0) memset(areas[i].memory, mark, (size_t)areas[i].bytes);
        for (int64_t j = 0; j < areas[i].bytes; j++) EXPECT(areas[i].memory[j] == mark);
    }
    return 0;
}

/* Exactly what the unit uses is lent, with the oracle's values; in backward, its gradients are written. */
static int visit(const model_box *box, const oracle *all, const sherd_view *view, bool backward, int64_t sample) {
    for (int32_t t = 0; t < box->model.tensor_count; t++) {
        int64_t count = count_of(&box->tensors[t]);
        int32_t unit = unit_of(box, t);
        bool used = uses(box, view->unit, unit);
        if (count == 0) continue;
        EXPECT(used == (view->parameters[t] != NULL));
        EXPECT((used && backward && !box->tensors[t].frozen) == (view->gradients[t] != NULL));
        if (!used) continue;
        EXPECT(memcmp(view->parameters[t], all->parameters[t], (size_t)count * sizeof(float)) == 0);
        float *gradient = view->gradients[t];
        bool adds = false;
        for (int32_t user = view->unit + 1; user < box->model.unit_count; user++) adds = adds || uses(box, user, unit);
        for (int64_t i = 0; gradient && i < count; i++) {
            float value = gradient_of(t, i, sample, view->unit, all->parameters[t][i], view->loss_scale);
            gradient[i] = adds ? gradient[i] + value : value;
        }
    }
    for (int32_t u = 0; u < box->model.unit_count; u++)
        EXPECT((view->activations[u] != NULL) == (box->units[u].activation_bytes > 0) &&
               (view->remade[u] != NULL) == (box->units[u].remade_bytes > 0) &&
               (view->outputs[u] != NULL) == (box->units[u].output_bytes > 0));
    return leave_marks(box, view, backward, 1 + (int)(sample % 200));
}

static int run_micro_step(sherd_session *session, const model_box *box, const oracle *all, int64_t sample,
                          sherd_recompute recompute) {
    sherd_view view;
    int32_t units = box->model.unit_count;
    for (int32_t u = 0; u < units; u++) {
        EXPECT(sherd_forward_begin(session, u, &view) == SHERD_OK);
        int line = visit(box, all, &view, false, sample);
        if (line) return line;
        EXPECT(sherd_forward_end(session, u) == SHERD_OK);
    }
    for (int32_t u = units; u-- > 0;) {
        int64_t again_bytes = recompute == SHERD_RECOMPUTE_UNIT ? box->units[u].activation_bytes : 0;
        again_bytes += recompute == SHERD_RECOMPUTE_NONE ? 0 : box->units[u].remade_bytes;
        if (u < units - 1 && again_bytes > 0) {
            EXPECT(sherd_forward_begin(session, u, &view) == SHERD_OK && view.again);
            int line = visit(box, all, &view, false, sample);
            if (line) return line;
            EXPECT(sherd_forward_end(session, u) == SHERD_OK);
        }
        EXPECT(sherd_backward_begin(session, u, &view) == SHERD_OK);
        int line = visit(box, all, &view, true, sample);
        if (line) return line;
        EXPECT(sherd_backward_end(session, u) == SHERD_OK);
    }
    return 0;
}

static int train(void *user, const sherd_options *options) {
    const model_box *box = user;
    sherd_session *session;
    oracle all;
    oracle_init(&all, box);
    EXPECT(sherd_session_create(options, &box->model, &session) == SHERD_OK);
    EXPECT(sherd_session_fill(session, fill, NULL) == SHERD_OK);
    for (int64_t step = 0; step < STEPS + 1; step++) { /* the last one sees what the one before has made */
        EXPECT(sherd_step_begin(session, options->micro_steps) == SHERD_OK);
        for (int32_t k = 0; k < options->micro_steps; k++) {
            int64_t sample = step * BATCH + (int64_t)k * options->world_size + options->rank;
            int line = run_micro_step(session, box, &all, sample, options->recompute);
            if (line) return line;
        }
        EXPECT(sherd_step(session, NULL) == SHERD_OK);
        oracle_step(&all, box, step * BATCH);
    }
    sherd_session_destroy(session);
    oracle_fini(&all, box);
    return 0;
}

static void train_all(int ranks, bool clip) {
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        model_box box;
        box_random(&box, seed);
        int32_t stage = (int32_t)(seed % 4);
        for (int gather = SHERD_GATHER_SHARED; gather <= SHERD_GATHER_COPY; gather++) {
            if (stage == 0 && gather == SHERD_GATHER_SHARED) continue;
            sherd_options options = SHERD_OPTIONS_INIT;
            options.stage = stage;
            options.gather = (sherd_gather)gather;
            options.prefetch = (int32_t)(seed / 4 % 5);
            options.recompute = (sherd_recompute)(seed % 3);
            options.micro_steps = BATCH / ranks;
            options.clip = clip ? 1e30 : 0; /* never bites, but takes the other order of instructions */
            options.optimizer.kind = SHERD_SGD;
            options.optimizer.lr = lr;
            options.timeout_s = options.start_timeout_s = 30;
            int line = run_ranks(ranks, &options, train, &box);
            cr_assert_eq(line, 0, "model %d, %d ranks, stage %d, gather %d: line %d", (int)seed, ranks, stage, gather,
                         line);
        }
    }
}

Test(odd_models, train_as_brute_force_does_on_one_rank, .timeout = 60) { train_all(1, false); }
Test(odd_models, train_as_brute_force_does_on_two_ranks, .timeout = 60) { train_all(2, true); }
Test(odd_models, train_as_brute_force_does_on_three_ranks, .timeout = 60) { train_all(3, false); }
Test(odd_models, train_as_brute_force_does_on_four_ranks, .timeout = 60) { train_all(4, true); }
