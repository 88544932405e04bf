/* Ranks on the software device, as processes, of which one dies or hangs in the middle of a step. */
#include "session/toy_later.h"
#include "tests/comm/ranks.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 3, LOST = 1, BATCH = 12, GOOD_STEPS = 1, LOST_CODE = 9 };

typedef struct loss {
    char name[64];
    sherd_link link;
    bool hangs; /* else it dies */
    int stage;
} loss;

typedef struct lost_work {
    const loss *loss;
    bool is_lost;
    atomic_int line;
} lost_work;

/* A toy_run_fn that does not come back from the first backward. */
static int enqueue_or_go(const toy_work *work, void *user) {
    lost_work *lost = user;
    if (lost->is_lost && work->backward) {
        if (lost->loss->hangs) usleep(2500000);
        _exit(LOST_CODE);
    }
    return toy_enqueue(work, &lost->line);
}

static sherd_options options_of(const loss *work, int32_t rank) {
    sherd_options options = SHERD_OPTIONS_INIT;
    options.rank = rank;
    options.world_size = RANKS;
    options.rendezvous = work->name;
    options.device = SHERD_DEVICE_CUDA;
    options.link = work->link;
    options.stage = work->stage;
    options.micro_steps = BATCH / RANKS;
    options.optimizer.kind = SHERD_SGD;
    options.optimizer.lr = 0.125;
    options.timeout_s = work->hangs ? 1 : 30;
    options.start_timeout_s = 30;
    return options;
}

static int lose(int32_t rank, int32_t world, void *argument) {
    const loss *work = argument;
    const sherd_options options = options_of(work, rank);
    lost_work lost = {.loss = work};
    sherd_session *session;
    toy_oracle oracle;
    (void)world;
    toy_oracle_init(&oracle);
    if (sherd_session_create(&options, toy_model(), &session)) return 1;
    if (sherd_session_fill(session, toy_fill, NULL)) return 2;
    int line = 0;
    for (int step = 0; step <= GOOD_STEPS && line == 0; step++) {
        lost.is_lost = rank == LOST && step == GOOD_STEPS;
        line = toy_step_by(session, &oracle, &options, enqueue_or_go, &lost, NULL);
        toy_oracle_step(&oracle, BATCH, 0.125f);
        if (line && step < GOOD_STEPS) return 3;
    }
    char cause[RANKS_TEXT];
    snprintf(cause, sizeof cause, "%s", sherd_last_error());
    sherd_session_destroy(session);
    toy_oracle_fini(&oracle);
    bool is_named = strstr(cause, work->hangs ? "rank 1" : "rank 1 died");
    return line == 0 ? 4 : is_named ? 0 : 5;
}

static void play(bool hangs) {
    for (int stage = 1; stage <= 3; stage += 2)
        for (int link = SHERD_LINK_NCCL; link <= SHERD_LINK_STAGED; link++) {
            loss work = {.link = (sherd_link)link, .hangs = hangs, .stage = stage};
            ranks_new_name(work.name, sizeof work.name);
            ranks_result result = ranks_run(AS_PROCESSES, RANKS, lose, &work, 30);
            for (int32_t rank = 0; rank < RANKS; rank++) {
                if (rank == LOST) continue;
                cr_assert_eq(result.code[rank], 0, "link %d, stage %d, rank %d: code %d: %s", link, stage, rank,
                             result.code[rank], result.text[rank]);
                cr_assert_lt(result.ended_ms[rank], 15000);
            }
        }
}

Test(device_loss, of_a_rank_that_dies_ends_the_others, .timeout = 60) { play(false); }
Test(device_loss, of_a_rank_that_hangs_ends_the_others, .timeout = 60) { play(true); }
