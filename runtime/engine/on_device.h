/* An engine whose rank computes on a device: the same programs, with streams for queues and events for waits.
 *
 * An instruction is `done` here when all of its work is enqueued. Before, its stream waits for the events of what the
 * program makes it wait for; of what it awaits of all ranks it waits for the own rank's part, since a peer's part comes
 * by a transfer, in which all meet. The host waits in COUNT, in VERDICT and where memory is used again, always asking
 * and carrying on meanwhile, so that what peers wait for is never held up.
 *
 * What the host sets, stores and reads lies in mirrors, pinned host memory. */
#ifndef SHD_ENGINE_ON_DEVICE_H
#define SHD_ENGINE_ON_DEVICE_H

#include "optim/spans.h"
#include "runtime/comm/link.h"
#include "runtime/device/device.h"
#include "runtime/engine/internal.h"

enum { SHD_TRANSFERS = 2 /* of one instruction */ };

/* How often the host looks whether the device is done. */
#define SHD_DEVICE_NAP_MS 0.05

/* An event, and what is known when it is reached: how many marks of each stream have passed. */
typedef struct shd_mark {
    shd_event *event;
    shd_queue_id queue;
    int64_t number; /* of the marks of its stream; 0: never recorded */
    int64_t passed[SHD_QUEUES];
} shd_mark;

/* What a rank has begun of a lane's instruction. */
typedef struct shd_engine_lane {
    const shd_instruction *instruction; /* NULL: none is open */
    shd_transfer transfers[SHD_TRANSFERS];
    int32_t count, next;
    bool begun; /* transfers[next] */
} shd_engine_lane;

/* Terms of a sum, in pinned memory, that are there when the compute stream is past what it has been given. */
typedef struct shd_late_terms {
    const double *terms;
    int64_t count;
    int32_t metric, micro_step; /* metric -1: the loss */
} shd_late_terms;

struct shd_engine_device {
    shd_engine_place place;
    int32_t mark_count;
    shd_mark *marks;        /* by instruction of the longest program: what it has enqueued */
    shd_mark *signal_marks; /* [SHD_COUNTERS][unit_count]: what has raised the own counter last */
    shd_mark *save_marks;   /* [unit_count]: the unit's mirrors are as it was */
    shd_mark begun, heard;  /* the start of a run; what the host waits for */
    bool idle[SHD_QUEUES];  /* nothing of the run has been put on this stream yet */
    /* The newest mark of each stream that a stream is to follow, and has not been told to: it is when it gets work. */
    shd_mark pending[SHD_QUEUES][SHD_QUEUES]; /* number 0: none */
    /* Of each stream, which marks of the others what it is given next comes after; and of all, which have passed. */
    int64_t clocks[SHD_QUEUES][SHD_QUEUES], host_clock[SHD_QUEUES];
    int64_t *raised; /* [SHD_COUNTERS][unit_count]: the own counters */
    bool *copying;   /* [unit_count]: its mirrors are being filled for storage */
    shd_engine_lane lanes[SHD_LANES];
    int32_t turn;         /* the first instruction whose transfers have not all begun; see shd_device_transfer */
    sherd_status failure; /* of a transfer that could not begin or go on; its cause below */
    char cause[512];
    shd_late_terms late[SHD_ENGINE_LATE_TERMS];
    int32_t late_count;
};

/* --- on_device.c -------------------------------------------------------------------------------------------------- */

/* Makes engine->device of config->place. Fails: MEMORY, DEVICE. */
sherd_status shd_device_begin(shd_engine *engine, int32_t longest_program);
/* Nothing of the engine's is under way any more. Accepts an engine without a device. */
void shd_device_end(shd_engine *engine);
/* The rank's stream of a queue. */
shd_stream *shd_device_stream(const shd_engine *engine, shd_queue_id queue);
/* `mark` stands for all that the queue's stream has been given. */
void shd_device_record(shd_engine *engine, shd_queue_id queue, shd_mark *mark);
/* What the queue's stream is given next comes after `mark`. It is told to wait by `settle`, right before it gets work, and
 * only for what does not follow from other waits. */
void shd_device_follow(shd_engine *engine, shd_queue_id queue, const shd_mark *mark);
void shd_device_settle(shd_engine *engine, shd_queue_id queue);
/* A run begins: what it enqueues comes after all that has been enqueued. */
void shd_device_begin_run(shd_engine *engine);
/* Whether the own counters have reached what the instruction awaits. */
bool shd_device_signalled(const shd_engine *engine, const shd_instruction *instruction);
/* The host has found that `mark` is reached. */
void shd_device_passed(shd_engine *engine, const shd_mark *mark);
/* What is enqueued on the instruction's stream from now on comes after what it waits for. */
void shd_device_order(shd_engine *engine, const shd_instruction *instruction);
/* All work of an instruction is enqueued: events stand for it, and for the counters that it raises. */
void shd_device_mark(shd_engine *engine, const shd_instruction *instruction);
/* Carries on what is under way between the ranks, and hands what has been copied to storage. Fails: as links, DEVICE. */
sherd_status shd_device_progress(shd_engine *engine);
/* Returns when `event` is reached. Fails: DEVICE, and as shd_comm_pause. */
sherd_status shd_device_await(shd_engine *engine, shd_event *event, const char *what);
/* The same of all that the compute stream has been given. */
sherd_status shd_device_await_compute(shd_engine *engine, const char *what);

/* --- transfers.c -------------------------------------------------------------------------------------------------- */

/* Whether what the instruction moves between ranks is enqueued as a whole; begins it, or carries it on. Transfers of both
 * lanes begin in the order of the program, which is the same on all ranks: which lane is ready first is not. A failure is
 * kept for shd_device_transferred, and counts as enqueued. */
bool shd_device_transfer(shd_engine *engine, const shd_instruction *instruction);
/* What follows the transfer: counts it, and adds up what has come. Fails: as the transfer did. */
sherd_status shd_device_transferred(shd_engine *engine, const shd_instruction *instruction);
/* The largest that a rank gives to a transfer of each lane. Pure. */
int64_t shd_device_lane_bytes(const shd_plan *plan, shd_lane lane);

/* --- mirrors.c ---------------------------------------------------------------------------------------------------- */

/* Where the host has what is at `values`, memory of a buffer that has a mirror. */
void *shd_device_mirror(const shd_engine *engine, int32_t buffer_index, const void *values);
/* SAVE: where storage wants the unit, its mirrors are filled, once: while an earlier run's copies are under way nothing
 * is done. */
void shd_device_save(shd_engine *engine, const shd_instruction *instruction);
/* Hands units whose mirrors are filled to storage. Fails: DEVICE (what is in them cannot be trusted). */
sherd_status shd_device_pass_saves(shd_engine *engine);
/* A save ends: what is still being copied for it, as it has failed, is not handed to the next one. */
void shd_device_forget_saves(shd_engine *engine);

/* --- hear.c: what the host is told of a step ---------------------------------------------------------------------- */

void shd_device_norm(shd_engine *engine, const shd_instruction *instruction);
/* Where the reduce of an instruction marks numbers that are not finite. */
uint64_t *shd_device_nonfinite(const shd_engine *engine, const shd_instruction *reduce);
/* Returns when all that the run has enqueued so far is done, with its sums in the engine. Fails: as shd_device_await. */
sherd_status shd_device_hear(shd_engine *engine);
/* Adds up the late terms that wait, once they are there. Fails: as shd_device_await. */
sherd_status shd_device_hear_terms(shd_engine *engine);

#endif
