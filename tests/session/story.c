#include "session/story.h"

#include "runtime/base/dtype.h"
#include "tests/support/scratch.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

sherd_options story_options(int ranks, int stage, sherd_gather gather) {
    sherd_options options = SHERD_OPTIONS_INIT;
    options.stage = stage;
    options.gather = gather;
    options.micro_steps = BATCH / ranks;
    options.optimizer.kind = SHERD_ADAMW;
    options.optimizer.lr = 0.01;
    options.clip = 1;
    options.timeout_s = options.start_timeout_s = 30;
    return options;
}

static float parameter_at(const sherd_options *options, const sherd_view *view, int32_t tensor, int64_t i) {
    const void *values = view->parameters[tensor];
    if (options->precision == SHERD_FP32) return ((const float *)values)[i];
    uint16_t half = ((const uint16_t *)values)[i];
    return options->precision == SHERD_BF16 ? shd_bf16_widen(half) : shd_fp16_widen(half);
}

/* Gradients are made from what the session lends. */
static void backward(const sherd_options *options, int64_t sample, const sherd_view *view) {
    for (int32_t t = 0; t < TOY_TENSORS; t++) {
        float *gradient = view->gradients[t];
        bool adds = t == TOY_TABLE && view->unit == 0;
        for (int64_t i = 0; gradient && i < toy_count(t); i++) {
            float wave = (float)((i * 7 + sample * 13 + t) % 23 - 11) / 7.0f;
            float value = (wave + parameter_at(options, view, t, i)) * view->loss_scale;
            gradient[i] = adds ? gradient[i] + value : value;
        }
    }
}

static void add_loss(sherd_session *session, const sherd_options *options, int64_t sample, const sherd_view *view) {
    for (int32_t t = 0; t < TOY_TENSORS; t++) {
        double term = 0;
        for (int64_t i = 0; view->parameters[t] && i < toy_count(t); i++)
            term += (double)parameter_at(options, view, t, i) * (double)((i + sample) % 5);
        sherd_add_loss(session, &term, 1);
    }
}

static int take_step(sherd_session *session, const sherd_options *options, story *told) {
    int64_t step = sherd_session_step_count(session);
    sherd_view view;
    EXPECT(sherd_step_begin(session, options->micro_steps) == SHERD_OK);
    for (int32_t k = 0; k < options->micro_steps; k++) {
        int64_t sample = step * BATCH + sherd_micro_batch(options, k);
        for (int32_t u = 0; u < TOY_UNITS; u++) {
            EXPECT(sherd_forward_begin(session, u, &view) == SHERD_OK);
            add_loss(session, options, sample, &view);
            if (options->rank == 0 && u == 0)
                for (int64_t i = 0; i < toy_count(TOY_TABLE); i++)
                    told->table[i] = parameter_at(options, &view, TOY_TABLE, i);
            EXPECT(sherd_forward_end(session, u) == SHERD_OK);
        }
        for (int32_t u = TOY_UNITS; u-- > 0;) {
            EXPECT(sherd_backward_begin(session, u, &view) == SHERD_OK);
            backward(options, sample, &view);
            EXPECT(sherd_backward_end(session, u) == SHERD_OK);
        }
    }
    sherd_step_result result;
    EXPECT(sherd_step(session, &result) == SHERD_OK);
    EXPECT(result.step == step && result.save_wait_ms >= 0);
    if (options->rank == 0 && step < STEPS) told->norms[step] = result.grad_norm, told->losses[step] = result.loss;
    return 0;
}

/* The same with callbacks. */
typedef struct looped_step {
    sherd_session *session;
    const sherd_options *options;
    story *told;
    int64_t step;
} looped_step;

static int64_t sample_of(const looped_step *looped, const sherd_view *view) {
    return looped->step * BATCH + sherd_micro_batch(looped->options, view->micro_step);
}

static sherd_status loop_forward(void *user, const sherd_view *view) {
    const looped_step *looped = user;
    add_loss(looped->session, looped->options, sample_of(looped, view), view);
    for (int64_t i = 0; looped->options->rank == 0 && view->unit == 0 && i < toy_count(TOY_TABLE); i++)
        looped->told->table[i] = parameter_at(looped->options, view, TOY_TABLE, i);
    return SHERD_OK;
}

static sherd_status loop_backward(void *user, const sherd_view *view) {
    const looped_step *looped = user;
    backward(looped->options, sample_of(looped, view), view);
    return SHERD_OK;
}

static int loop_step(sherd_session *session, const sherd_options *options, story *told) {
    looped_step looped = {session, options, told, sherd_session_step_count(session)};
    const sherd_callbacks callbacks = {
        .size = sizeof callbacks, .forward = loop_forward, .backward = loop_backward, .user = &looped};
    sherd_step_result result;
    EXPECT(sherd_run_step(session, options->micro_steps, &callbacks, &result) == SHERD_OK);
    if (options->rank == 0 && looped.step < STEPS)
        told->norms[looped.step] = result.grad_norm, told->losses[looped.step] = result.loss;
    return 0;
}

int take_steps(sherd_session *session, const sherd_options *options, int64_t last, story *told) {
    int line = 0;
    while (line == 0 && sherd_session_step_count(session) < last)
        line = (told->looped ? loop_step : take_step)(session, options, told);
    return line;
}

int train_and_save(void *user, const sherd_options *options) {
    story *told = user;
    sherd_session *session;
    EXPECT(sherd_session_create(options, toy_model(), &session) == SHERD_OK);
    EXPECT(sherd_session_save(session, told->dir, NULL) == SHERD_STATE);
    EXPECT(sherd_session_fill(session, toy_fill, NULL) == SHERD_OK);
    int line = take_steps(session, options, SAVED_AFTER, told);
    if (line) return line;
    EXPECT(sherd_session_save(session, told->dir, "{\"position\": 24}") == SHERD_OK);
    line = take_steps(session, options, STEPS, told);
    sherd_session_destroy(session);
    return line;
}

int load_and_train(void *user, const sherd_options *options) {
    story *told = user;
    sherd_session *session;
    char *note = NULL;
    EXPECT(sherd_session_create(options, toy_model(), &session) == SHERD_OK);
    EXPECT(sherd_session_load(session, told->dir, &note) == SHERD_OK);
    EXPECT(note && strstr(note, "position") && strstr(note, "24"));
    sherd_note_free(note);
    EXPECT(sherd_session_step_count(session) == SAVED_AFTER);
    int line = take_steps(session, options, STEPS, told);
    sherd_session_destroy(session);
    return line;
}

bool is_same_story(const story *a, const story *b) {
    enum { BYTES = (STEPS - SAVED_AFTER) * sizeof(double) };
    return memcmp(a->norms + SAVED_AFTER, b->norms + SAVED_AFTER, BYTES) == 0 &&
           memcmp(a->losses + SAVED_AFTER, b->losses + SAVED_AFTER, BYTES) == 0 &&
           memcmp(a->table, b->table, sizeof a->table) == 0;
}

void make_folder(char *dir) {
    if (!scratch_folder(dir)) abort();
}

void remove_folder(const char *dir) {
    char command[200];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    if (system(command) != 0) abort();
}

int count_entries(const char *dir, const char *part) {
    DIR *folder = opendir(dir);
    int count = 0;
    for (struct dirent *entry; folder && (entry = readdir(folder));) count += strstr(entry->d_name, part) != NULL;
    if (folder) closedir(folder);
    return count;
}
