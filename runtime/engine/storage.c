/* SAVE and COMMIT: from the program to what keeps checkpoints. */
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/engine/on_device.h"

#include <time.h>

/* How long a rank waits for its disk before it tells the others that it is still there: a slow disk is no hung rank. */
enum { ROUND_MS = 500 };

/* How often it looks: nobody wakes it, as peers do who signal. */
enum { NAP_NS = 500000 };

void shd_engine_save(shd_engine *engine, int32_t unit) {
    const shd_storage *storage = engine->config.storage;
    if (storage) storage->save(storage->user, unit);
}

bool shd_engine_saved(const shd_engine *engine, int32_t unit) {
    const shd_storage *storage = engine->config.storage;
    return !storage || storage->saved(storage->user, unit);
}

shd_save_state shd_engine_save_state(const shd_engine *engine) {
    const shd_storage *storage = engine->config.storage;
    return storage ? storage->state(storage->user) : SHD_SAVE_NONE;
}

sherd_status shd_engine_saves_ended(const shd_engine *engine, bool *ended) {
    const shd_verdict *verdicts = engine->verdicts;
    bool all = true;
    for (int32_t r = 0; r < engine->config.plan->policy.world_size; r++) {
        if ((verdicts[r].save_state == SHD_SAVE_NONE) != (verdicts[0].save_state == SHD_SAVE_NONE))
            return shd_fail(SHERD_MISMATCH,
                            "rank %d saves a checkpoint and rank %d does not: all ranks must begin a save, "
                            "after the same step",
                            verdicts[r].save_state == SHD_SAVE_NONE ? 0 : r,
                            verdicts[r].save_state == SHD_SAVE_NONE ? r : 0);
        all = all && verdicts[r].save_state == SHD_SAVE_ENDED;
    }
    *ended = all;
    return SHERD_OK;
}

sherd_status shd_engine_await_disk(shd_engine *engine) {
    const struct timespec nap = {.tv_nsec = NAP_NS};
    nanosleep(&nap, NULL);
    if (engine->device) SHD_TRY(shd_device_progress(engine));
    shd_patience patience = {0}; /* never sleeps: finds out whether another rank has failed */
    return shd_comm_pause(engine->config.comm, &patience, "SAVE");
}

/* One round: waits some time for the own disk, then hears how far the others are. */
static sherd_status exchange_states(shd_engine *engine) {
    double since_ms = shd_clock_ms();
    while (shd_engine_save_state(engine) == SHD_SAVE_WRITING && shd_clock_ms() - since_ms < ROUND_MS)
        SHD_TRY(shd_engine_await_disk(engine));
    const shd_verdict mine = {.save_state = shd_engine_save_state(engine)};
    return shd_comm_exchange(engine->config.comm, &mine, sizeof mine, engine->verdicts);
}

/* A step commits what every rank had written at its verdict; between steps there is nothing to do but to wait. */
sherd_status shd_engine_commit(shd_engine *engine) {
    const shd_storage *storage = engine->config.storage;
    if (!storage) return SHERD_OK;
    bool waits = engine->program->kind == SHD_PROGRAM_SAVE && shd_engine_save_state(engine) != SHD_SAVE_NONE;
    while (waits && !engine->commits) {
        SHD_TRY(exchange_states(engine));
        SHD_TRY(shd_engine_saves_ended(engine, &engine->commits));
    }
    if (!engine->commits) return SHERD_OK;
    if (engine->device) shd_device_forget_saves(engine);
    return storage->commit(storage->user);
}
