#include "tests/train/run_job.h"

#include "runtime/base/memory.h"
#include "tests/io/make_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

const char small_job[] = "name: small\n"
                         "model: {family: gpt2, vocab_size: 60, context: 8, d_model: 16, n_layer: 2, n_head: 2}\n"
                         "data: {train: tokens.u16}\n"
                         "train: {steps: 12, global_batch: 12, micro_batch: 1}\n"
                         "optimizer: {lr: 1.0e-2, warmup_steps: 3}\n"
                         "checkpoint: {dir: ckpt, every: 0}\n"
                         "log: {dir: log}\n"
                         "run: {threads: 1, timeout_s: 30, start_timeout_s: 30}\n";

void make_tokens(const char *path, int64_t count, uint32_t seed) {
    uint16_t *tokens = calloc((size_t)count, sizeof *tokens);
    uint32_t state = seed;
    for (int64_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        /* Even places repeat the token before, so that there is something to learn. */
        tokens[i] = i % 2 ? (uint16_t)((state >> 16) % 60) : i ? tokens[i - 1] : 0;
    }
    write_file(path, tokens, (size_t)count * sizeof *tokens);
    free(tokens);
}

typedef struct watcher {
    job_result *result; /* rank 0's; else NULL */
    bool stops, asks;
    int64_t stop_step, asking_step, step, calls;
    int32_t nap_ms;
    job_events events;
    int64_t row_count;
} watcher;

static void stepped(void *user, const shd_train_step *row) {
    watcher *watch = user;
    watch->step = row->step;
    watch->row_count++;
    int64_t calls = shd_memory_calls();
    if (watch->result && watch->result->step_count < MAX_STEPS) {
        watch->result->allocations[watch->result->step_count] = calls - watch->calls;
        watch->result->steps[watch->result->step_count++] = *row;
    }
    watch->calls = calls;
}

static uint32_t stopping(void *user) {
    const watcher *watch = user;
    if (watch->events.stop_rows > 0 && watch->row_count >= watch->events.stop_rows) return 1;
    if (watch->nap_ms > 0) usleep((useconds_t)watch->nap_ms * 500); /* asked twice a step */
    return watch->stops && watch->step >= watch->stop_step;
}

static bool asking(void *user) {
    watcher *watch = user;
    bool now = watch->asks && watch->step >= watch->asking_step;
    if (now) watch->asks = false;
    return now;
}

static void saved(void *user, const shd_train_save *save) {
    watcher *watch = user;
    if (watch->events.saved) watch->events.saved(save->step);
    if (watch->result && watch->result->save_count < MAX_STEPS)
        watch->result->save_steps[watch->result->save_count++] = save->step;
}

static void finished(void *user, const shd_train_summary *summary) {
    watcher *watch = user;
    if (watch->result) watch->result->summary = *summary;
}

static int32_t count_settings(const char *const *settings, shd_job_setting list[16]) {
    int32_t count = 0;
    while (settings && settings[count] && count < 16) {
        list[count] = (shd_job_setting){.text = settings[count]};
        count++;
    }
    return count;
}

static sherd_status run_rank(const shd_job *job, int32_t rank, const char *name, watcher *watch) {
    sherd_options place = SHERD_OPTIONS_INIT;
    place.rank = rank;
    place.world_size = (int32_t)job->run.ranks;
    place.rendezvous = name;
    const shd_train_hooks hooks = {.stepped = stepped,
                                   .saved = saved,
                                   .stopping = stopping,
                                   .save_asked = asking,
                                   .finished = finished,
                                   .user = watch};
    return shd_train_run(job, &place, &hooks);
}

/* What is to be told to whom. */
typedef struct orders {
    int32_t stopping_rank, asking_rank; /* -1: none */
    int64_t stop_step, asking_step;
    int32_t slow_rank, nap_ms;
    job_events events; /* rank 0's */
} orders;

static watcher watcher_of(const orders *told, int32_t rank, job_result *result) {
    return (watcher){.result = result,
                     .stops = rank == told->stopping_rank,
                     .asks = rank == told->asking_rank,
                     .stop_step = told->stop_step,
                     .asking_step = told->asking_step,
                     .nap_ms = rank == told->slow_rank ? told->nap_ms : 0,
                     .events = rank == 0 ? told->events : (job_events){0}};
}

static void run_ordered(const char *text, const char *const *settings, const orders *told, job_result *out) {
    static int run_count;
    char name[64];
    shd_job_setting list[16];
    shd_job *job = NULL;
    pid_t children[MAX_RANKS];
    *out = (job_result){0};
    write_text("job.yaml", text);
    out->status[0] = shd_job_load("job.yaml", list, count_settings(settings, list), &job);
    snprintf(out->cause, sizeof out->cause, "%s", sherd_last_error());
    if (out->status[0] != SHERD_OK) return;
    snprintf(name, sizeof name, "sherd-test-train-%d-%d", (int)getpid(), run_count++);
    fflush(NULL);
    for (int32_t r = 1; r < job->run.ranks; r++) {
        children[r] = fork();
        if (children[r] != 0) continue;
        watcher watch = watcher_of(told, r, NULL);
        _exit(run_rank(job, r, name, &watch));
    }
    watcher watch = watcher_of(told, 0, out);
    out->status[0] = run_rank(job, 0, name, &watch);
    snprintf(out->cause, sizeof out->cause, "%s", sherd_last_error());
    for (int32_t r = 1; r < job->run.ranks; r++) {
        int state = 0;
        waitpid(children[r], &state, 0);
        out->status[r] = WIFEXITED(state) ? (sherd_status)WEXITSTATUS(state) : SHERD_INTERNAL;
    }
    shd_job_destroy(job);
}

void run_job_stopping(const char *text, const char *const *settings, int32_t stopping_rank, int64_t stop_step,
                      job_result *out) {
    const orders told = {.stopping_rank = stopping_rank, .stop_step = stop_step, .asking_rank = -1};
    run_ordered(text, settings, &told, out);
}

void run_job_asking(const char *text, const char *const *settings, int64_t asking_step, job_result *out) {
    bool several = false;
    for (int32_t i = 0; settings && settings[i]; i++) several |= strcmp(settings[i], "run.ranks=2") == 0;
    const orders told = {.stopping_rank = -1, .asking_rank = several, .asking_step = asking_step};
    run_ordered(text, settings, &told, out);
}

void run_job_slowly(const char *text, const char *const *settings, int32_t slow_rank, int32_t nap_ms, job_result *out) {
    const orders told = {.stopping_rank = -1, .asking_rank = -1, .slow_rank = slow_rank, .nap_ms = nap_ms};
    run_ordered(text, settings, &told, out);
}

void run_job_watched(const char *text, const char *const *settings, const job_events *events, job_result *out) {
    const orders told = {.stopping_rank = -1, .asking_rank = -1, .events = *events};
    run_ordered(text, settings, &told, out);
}

void run_job(const char *text, const char *const *settings, job_result *out) {
    run_job_stopping(text, settings, -1, 0, out);
}

static sherd_status check(const char *text, const char *const *settings, bool tells) {
    shd_job_setting list[16];
    shd_job *job = NULL;
    write_text("job.yaml", text);
    sherd_status status = shd_job_load("job.yaml", list, count_settings(settings, list), &job);
    if (status == SHERD_OK) status = shd_train_check(job, tells, &(int64_t){0});
    shd_job_destroy(job);
    return status;
}

sherd_status check_job(const char *text, const char *const *settings) { return check(text, settings, false); }
sherd_status look_at_job(const char *text, const char *const *settings) { return check(text, settings, true); }
