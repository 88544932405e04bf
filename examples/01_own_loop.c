/* A trainer with a loop, a model and data of its own, sharded by sherd.
 *
 * A small MLP learns y = sin 3x₁ · cos 2x₂ by gradient descent, forward and backward written by hand. Alone it is one
 * rank; under `sherd run -n 4 ./01_own_loop` every rank holds a quarter of parameters, gradients and optimizer state, and
 * a quarter of the samples. Losses agree up to rounding: a rank adds up the gradients of its own samples first. */
#include <math.h>
#include <sherd/sherd.h>
#include <stdio.h>
#include <stdlib.h>

enum { INPUTS = 2, HIDDEN = 64, SAMPLES = 256, STEPS = 400, W1 = 0, B1, W2, B2 };

static float inputs[SAMPLES][INPUTS], wanted[SAMPLES], hidden[SAMPLES][HIDDEN], error[SAMPLES];
static double loss[SAMPLES];

static void check(sherd_status status) {
    if (status == SHERD_OK) return;
    fprintf(stderr, "%s: %s\n", sherd_status_text(status), sherd_last_error());
    exit(1);
}

/* A hash of the position: every rank sees the same start, whatever it stores. */
static sherd_status initial_values(void *user, int32_t tensor, int64_t first, int64_t count, float *values) {
    (void)user;
    for (int64_t i = 0; i < count; i++) {
        unsigned hash = (unsigned)(first + i + 1) * 2654435761u + (unsigned)tensor * 40503u;
        values[i] = tensor == W1 || tensor == W2 ? (float)(hash >> 8) / (1 << 23) - 1.0f : 0.0f;
    }
    return SHERD_OK;
}

static void hidden_forward(const sherd_view *view, int count) {
    const float *w = view->parameters[W1], *b = view->parameters[B1];
    for (int s = 0; s < count; s++)
        for (int h = 0; h < HIDDEN; h++)
            hidden[s][h] = tanhf(inputs[s][0] * w[h] + inputs[s][1] * w[HIDDEN + h] + b[h]);
}

static void output_forward(const sherd_view *view, int count) {
    const float *w = view->parameters[W2], *b = view->parameters[B2];
    for (int s = 0; s < count; s++) {
        float y = b[0];
        for (int h = 0; h < HIDDEN; h++) y += hidden[s][h] * w[h] / 8;
        error[s] = y - wanted[s];
        loss[s] = error[s] * error[s];
    }
}

static void output_backward(const sherd_view *view, int count) {
    const float *w = view->parameters[W2];
    float *dw = view->gradients[W2], *db = view->gradients[B2];
    db[0] = 0;
    for (int h = 0; h < HIDDEN; h++) dw[h] = 0;
    for (int s = 0; s < count; s++) {
        float dy = 2 * error[s] * view->loss_scale;
        db[0] += dy;
        for (int h = 0; h < HIDDEN; h++) {
            float a = hidden[s][h];
            dw[h] += dy * a / 8;
            hidden[s][h] = dy * w[h] / 8 * (1 - a * a); /* now the gradient before tanh */
        }
    }
}

static void hidden_backward(const sherd_view *view, int count) {
    float *dw = view->gradients[W1], *db = view->gradients[B1];
    for (int h = 0; h < HIDDEN; h++) {
        dw[h] = dw[HIDDEN + h] = db[h] = 0;
        for (int s = 0; s < count; s++) {
            dw[h] += hidden[s][h] * inputs[s][0];
            dw[HIDDEN + h] += hidden[s][h] * inputs[s][1];
            db[h] += hidden[s][h];
        }
    }
}

int main(void) {
    static const sherd_tensor tensors[] = {[W1] = {.name = "w1", .dim_count = 2, .shape = {INPUTS, HIDDEN}},
                                           [B1] = {.name = "b1", .dim_count = 1, .shape = {HIDDEN}},
                                           [W2] = {.name = "w2", .dim_count = 1, .shape = {HIDDEN}},
                                           [B2] = {.name = "b2"}}; /* a scalar */
    static const sherd_unit units[] = {{.name = "hidden", .first_tensor = W1, .tensor_count = 2},
                                       {.name = "output", .first_tensor = W2, .tensor_count = 2}};
    const sherd_model model = {
        .size = sizeof model, .units = units, .unit_count = 2, .tensors = tensors, .tensor_count = 4};
    sherd_options options = SHERD_OPTIONS_INIT;
    check(sherd_options_from_env(&options));
    options.optimizer.lr = 0.01;

    int count = 0; /* this rank's samples: every world_size-th */
    for (int i = options.rank; i < SAMPLES; i += options.world_size, count++) {
        inputs[count][0] = (float)(i % 16) / 8 - 1;
        inputs[count][1] = (float)(i / 16) / 8 - 1;
        wanted[count] = sinf(3 * inputs[count][0]) * cosf(2 * inputs[count][1]);
    }

    sherd_session *session;
    check(sherd_session_create(&options, &model, &session));
    check(sherd_session_fill(session, initial_values, NULL));
    for (int step = 0; step < STEPS; step++) {
        sherd_view view;
        sherd_step_result result;
        check(sherd_step_begin(session, count));
        check(sherd_forward_begin(session, 0, &view));
        hidden_forward(&view, count);
        check(sherd_forward_end(session, 0));
        check(sherd_forward_begin(session, 1, &view));
        output_forward(&view, count);
        check(sherd_forward_end(session, 1));
        check(sherd_backward_begin(session, 1, &view));
        output_backward(&view, count);
        check(sherd_backward_end(session, 1));
        check(sherd_backward_begin(session, 0, &view));
        hidden_backward(&view, count);
        check(sherd_backward_end(session, 0));
        check(sherd_add_loss(session, loss, count));
        check(sherd_step(session, &result));
        if (options.rank == 0 && step % 50 == 49) printf("step %d loss %.5f\n", step + 1, result.loss);
    }
    sherd_session_destroy(session);
    return 0;
}
