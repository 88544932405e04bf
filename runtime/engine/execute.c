/* The executor: a switch over instructions, and the rules of when one may run.
 *
 * A rank that blocks keeps progressing its own queues, so that what its peers wait for is never held up by its own
 * waiting. */
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/engine/on_device.h"

#include <stdio.h>
#include <string.h>

_Static_assert((int)SHD_COUNTERS <= (int)SHD_COMM_COUNTER_KINDS, "comm keeps a counter for each kind of a program's");

static const shd_collective collective_of[SHD_OPS] = {
    [SHD_OP_GATHER] = SHD_COLLECTIVE_GATHER,  [SHD_OP_GATHER_GRADIENT] = SHD_COLLECTIVE_GATHER_GRADIENT,
    [SHD_OP_REDUCE] = SHD_COLLECTIVE_REDUCE,  [SHD_OP_REDUCE_REPLICAS] = SHD_COLLECTIVE_REDUCE_REPLICAS,
    [SHD_OP_COUNT] = SHD_COLLECTIVE_EXCHANGE,
};

static const shd_activity activity_of[SHD_PROGRAM_KINDS] = {
    [SHD_PROGRAM_TRAIN] = SHD_ACTIVITY_STEP,
    [SHD_PROGRAM_EVALUATE] = SHD_ACTIVITY_EVALUATION,
    [SHD_PROGRAM_PROLOGUE] = SHD_ACTIVITY_SETTING,
    [SHD_PROGRAM_SAVE] = SHD_ACTIVITY_SAVING,
};

/* --- an instruction's life: announced, ready, executed, finished -------------------------------------------------- */

/* What the engine stops before: the mathematics is the caller's. */
static bool is_callers(const shd_instruction *instruction) {
    return instruction->op == SHD_OP_FORWARD || instruction->op == SHD_OP_RECOMPUTE ||
           instruction->op == SHD_OP_BACKWARD;
}

static bool is_collective(const shd_instruction *instruction) {
    switch (instruction->op) {
    case SHD_OP_GATHER:
    case SHD_OP_GATHER_GRADIENT:
    case SHD_OP_REDUCE:
    case SHD_OP_REDUCE_REPLICAS:
    case SHD_OP_COUNT: return true;
    default: return false;
    }
}

/* Records that it is issued, and tells the peers if they take part. */
static sherd_status announce(shd_engine *engine, const shd_instruction *instruction) {
    bool collective = is_collective(instruction);
    const shd_record record = {
        .queued_ns = shd_clock_ns(),
        .bytes = instruction->bytes,
        .step = engine->recorded_step,
        .collective = collective ? shd_comm_announced(engine->config.comm) : SHD_RECORD_NO_COLLECTIVE,
        .unit = instruction->unit_index,
        .micro_step = instruction->micro_step,
        .kind = (uint8_t)(SHD_RECORD_INSTRUCTION + (int)instruction->op),
        .queue = (uint8_t)instruction->queue,
        .program = (uint8_t)engine->program->kind,
    };
    engine->records[instruction - engine->program->instructions] = shd_recorder_add(engine->recorder, &record);
    if (!collective) return SHERD_OK;
    return shd_comm_announce(engine->config.comm, collective_of[instruction->op], instruction->unit_index,
                             instruction->bytes);
}

static bool is_ready(const shd_engine *engine, const shd_instruction *instruction) {
    const shd_program *program = engine->program;
    /* A device's are done when the copy to host memory is enqueued. */
    if (instruction->op == SHD_OP_SAVE) return engine->device || shd_engine_saved(engine, instruction->unit_index);
    for (int32_t i = 0; i < instruction->waits.count; i++)
        if (!engine->done[program->waits[instruction->waits.first + i]]) return false;
    if (engine->device && !shd_device_signalled(engine, instruction)) return false;
    for (int32_t i = 0; i < instruction->awaits.count && !engine->device; i++) {
        const shd_await *await = &program->awaits[instruction->awaits.first + i];
        int64_t base =
            engine->counter_base[(int32_t)await->counter * engine->config.plan->unit_count + await->unit_index];
        if (!shd_comm_reached(engine->config.comm, shd_counter_scope(await->counter), (int32_t)await->counter,
                              await->unit_index, base + await->target))
            return false;
    }
    return instruction->op != SHD_OP_COUNT || shd_comm_posted(engine->config.comm);
}

static sherd_status execute(shd_engine *engine, const shd_instruction *instruction) {
    shd_unit *unit = instruction->unit_index >= 0 ? &engine->units[instruction->unit_index] : NULL;
    if (engine->device && is_collective(instruction) && instruction->op != SHD_OP_COUNT)
        return shd_device_transferred(engine, instruction);
    switch (instruction->op) {
    case SHD_OP_COUNT: return shd_engine_count(engine);
    case SHD_OP_GATHER: return shd_engine_gather(engine, instruction);
    case SHD_OP_WAIT: shd_unit_move(unit, SHD_UNIT_GATHERED); return SHERD_OK;
    case SHD_OP_FORWARD:
    case SHD_OP_RECOMPUTE:
    case SHD_OP_BACKWARD: return SHERD_OK; /* the caller has done it */
    case SHD_OP_ROUND: shd_engine_round(engine, instruction); return SHERD_OK;
    case SHD_OP_RELEASE: shd_unit_move(unit, SHD_UNIT_SHARDED); return SHERD_OK;
    case SHD_OP_REDUCE: return shd_engine_reduce(engine, instruction);
    case SHD_OP_REDUCE_REPLICAS: return shd_engine_reduce_replicas(engine, instruction);
    case SHD_OP_NORM: shd_engine_norm(engine, instruction); return SHERD_OK;
    case SHD_OP_GATHER_GRADIENT: return shd_engine_gather_gradient(engine, instruction);
    case SHD_OP_VERDICT: return shd_engine_verdict(engine);
    case SHD_OP_DIRECT: shd_engine_direct(engine, instruction); return SHERD_OK;
    case SHD_OP_UPDATE: shd_engine_update(engine, instruction); return SHERD_OK;
    case SHD_OP_SAVE: return SHERD_OK; /* submitting it has begun it, that it is ready has ended it */
    case SHD_OP_COMMIT: return shd_engine_commit(engine);
    case SHD_OPS: break;
    }
    return shd_fail(SHERD_INTERNAL, "instruction with unknown operation %d", (int)instruction->op);
}

/* What the time of an instruction counts as. */
static double *time_of(shd_engine *engine, shd_op op) {
    switch (op) {
    case SHD_OP_ROUND: return &engine->times.compute_ms; /* the end of a backward */
    case SHD_OP_NORM:
    case SHD_OP_DIRECT:
    case SHD_OP_UPDATE: return &engine->times.optimizer_ms;
    case SHD_OP_COMMIT: return engine->commits ? &engine->times.save_ms : &engine->times.comm_ms;
    default: return &engine->times.comm_ms;
    }
}

static sherd_status run(shd_engine *engine, const shd_instruction *instruction) {
    ptrdiff_t index = instruction - engine->program->instructions;
    int64_t since_ns = shd_clock_ns();
    if (!is_callers(instruction)) shd_recorder_start(engine->recorder, engine->records[index], since_ns);
    SHD_TRY(execute(engine, instruction));
    if (engine->device) shd_device_mark(engine, instruction);
    int64_t now_ns = shd_clock_ns();
    shd_recorder_end(engine->recorder, engine->records[index], now_ns);
    *time_of(engine, instruction->op) += (double)(now_ns - since_ns) * 1e-6;
    engine->done[index] = true;
    for (int32_t i = 0; i < instruction->signals.count; i++) {
        const shd_signal *signal = &engine->program->signals[instruction->signals.first + i];
        shd_comm_signal(engine->config.comm, (int32_t)signal->counter, signal->unit_index);
    }
    return SHERD_OK;
}

/* --- queues ------------------------------------------------------------------------------------------------------- */

static bool item_is_ready(void *context, int32_t item) {
    shd_engine *engine = context;
    const shd_instruction *instruction = &engine->program->instructions[item];
    return is_ready(engine, instruction) && (!engine->device || shd_device_transfer(engine, instruction));
}

static sherd_status run_item(void *context, int32_t item) {
    shd_engine *engine = context;
    return run(engine, &engine->program->instructions[item]);
}

static sherd_status submit(shd_engine *engine, const shd_instruction *instruction) {
    if (instruction->op == SHD_OP_COUNT)
        SHD_TRY(shd_comm_post(engine->config.comm, &engine->local_targets, sizeof engine->local_targets));
    if (instruction->op == SHD_OP_SAVE && engine->device)
        shd_device_save(engine, instruction);
    else if (instruction->op == SHD_OP_SAVE)
        shd_engine_save(engine, instruction->unit_index);
    const shd_work work = {.ready = item_is_ready,
                           .run = run_item,
                           .context = engine,
                           .item = (int32_t)(instruction - engine->program->instructions)};
    return shd_queue_submit(engine->queues[instruction->queue], &work);
}

static sherd_status progress(shd_engine *engine, bool *ran) {
    *ran = false;
    if (engine->device) SHD_TRY(shd_device_progress(engine));
    for (int32_t q = SHD_QUEUE_COMPUTE + 1; q < SHD_QUEUES; q++) {
        bool some = false;
        SHD_TRY(shd_queue_progress(engine->queues[q], &some));
        *ran |= some;
    }
    return SHERD_OK;
}

sherd_status shd_engine_progress_queues(shd_engine *engine) {
    bool ran;
    return progress(engine, &ran);
}

/* What holds an instruction up: itself, or of the instructions of other queues that it waits for the one that is first in
 * its queue. */
static const shd_instruction *find_blocking(const shd_engine *engine, const shd_instruction *instruction) {
    const shd_program *program = engine->program;
    for (int32_t i = 0; i < instruction->waits.count; i++) {
        int32_t waited = program->waits[instruction->waits.first + i];
        if (!engine->done[waited])
            return &program->instructions[shd_queue_front(engine->queues[program->instructions[waited].queue])];
    }
    return instruction;
}

/* Names what is waited for, in messages and for readers of records: "REDUCE h.3". */
static void name_wait(shd_engine *engine, const shd_instruction *held, char *out, size_t bytes) {
    const shd_instruction *instruction = find_blocking(engine, held);
    shd_recorder_await(engine->recorder,
                       instruction == held ? -1 : engine->records[instruction - engine->program->instructions]);
    const char *unit = instruction->unit_index < 0 ? "" : engine->config.plan->unit_names[instruction->unit_index];
    snprintf(out, bytes, "%s%s%s", shd_op_text(instruction->op), *unit ? " " : "", unit);
}

/* Whether it is this rank's own disk that an instruction waits for: a SAVE that has not ended. */
static bool waits_for_disk(const shd_engine *engine, const shd_instruction *instruction) {
    for (int32_t i = 0; i < instruction->waits.count; i++) {
        int32_t waited = engine->program->waits[instruction->waits.first + i];
        if (!engine->done[waited] && engine->program->instructions[waited].op == SHD_OP_SAVE) return true;
    }
    return false;
}

/* What is counted by those who do it. */
static double counted_ms(const shd_engine *engine) {
    return engine->times.comm_ms + engine->times.optimizer_ms + engine->times.save_ms;
}

/* A device wakes nobody. */
static shd_patience fresh_patience(const shd_engine *engine) {
    return (shd_patience){.nap_ms = engine->device ? SHD_DEVICE_NAP_MS : 0};
}

/* One turn of waiting, which counts as what it is spent on; items that run meanwhile count their own time. `what` is
 * named when there is nothing else to do; "": something has run since. */
static sherd_status wait_turn(shd_engine *engine, const shd_instruction *instruction, shd_patience *patience,
                              char *what, size_t what_bytes) {
    bool disk = waits_for_disk(engine, instruction), ran;
    double since_ms = shd_clock_ms(), before_ms = counted_ms(engine);
    SHD_TRY(progress(engine, &ran));
    if (ran) what[0] = 0;
    if (!ran && !what[0]) name_wait(engine, instruction, what, what_bytes);
    if (ran || disk) *patience = fresh_patience(engine);
    if (!ran) SHD_TRY(disk ? shd_engine_await_disk(engine) : shd_comm_pause(engine->config.comm, patience, what));
    double spent_ms = shd_clock_ms() - since_ms - (counted_ms(engine) - before_ms);
    *(disk ? &engine->times.save_ms : &engine->times.comm_ms) += spent_ms;
    /* Of other programs all counts as other time. */
    if (!ran && engine->program->kind == SHD_PROGRAM_TRAIN)
        *(disk ? &engine->clock.other_ms : &engine->clock.wait_ms) += spent_ms;
    return SHERD_OK;
}

static sherd_status hold_until_ready(shd_engine *engine, const shd_instruction *instruction) {
    if (is_ready(engine, instruction)) return SHERD_OK;
    char what[128] = "";
    shd_patience patience = fresh_patience(engine);
    do SHD_TRY(wait_turn(engine, instruction, &patience, what, sizeof what));
    while (!is_ready(engine, instruction));
    shd_recorder_await(engine->recorder, -1);
    return SHERD_OK;
}

static sherd_status finish(shd_engine *engine) {
    /* The verifier has seen the compute instructions wait for everything else. */
    for (int32_t q = SHD_QUEUE_COMPUTE + 1; q < SHD_QUEUES; q++)
        if (shd_queue_length(engine->queues[q]) > 0)
            return shd_fail(SHERD_INTERNAL, "a step program ends before its instructions in the %s queue",
                            shd_queue_text((shd_queue_id)q));
    int32_t count = SHD_COUNTERS * engine->config.plan->unit_count;
    for (int32_t i = 0; i < count; i++) engine->counter_base[i] += engine->program->raised[i];
    engine->progress = engine->next_progress;
    if (engine->program->kind != SHD_PROGRAM_TRAIN) engine->clock.other_ms += shd_clock_ms() - engine->clock.begin_ms;
    shd_recorder_enter(engine->recorder, SHD_ACTIVITY_BOUNDARY, engine->recorded_step);
    engine->program = NULL;
    return SHERD_OK;
}

/* --- the run of a program ----------------------------------------------------------------------------------------- */

void shd_engine_begin(shd_engine *engine, shd_program_kind kind, int64_t step, int64_t target_count) {
    engine->program = engine->config.programs[kind];
    memset(engine->done, 0, (size_t)engine->program->instruction_count * sizeof *engine->done);
    engine->next = 0;
    engine->due = false;
    engine->step = step;
    engine->local_targets = target_count;
    engine->target_count = 0;
    engine->gradient_scale = 1;
    engine->skips = false;
    engine->commits = false;
    engine->next_progress = engine->progress;
    engine->times = (shd_engine_times){0};
    engine->result = (sherd_step_result){0};
    engine->clock.begin_ms = shd_clock_ms();
    engine->loss_suspect = engine->gradient_suspect = (shd_suspect){.rank = -1, .micro_step = -1, .unit = -1};
    shd_exact_sum_clear(&engine->loss);
    for (int32_t m = 0; m < SHERD_METRICS; m++) shd_exact_sum_clear(&engine->metrics[m]);
    shd_exact_sum_clear(&engine->square_sum);
    shd_exact_sum_clear(&engine->parameter_square_sum);
    if (engine->device) shd_device_begin_run(engine);
    engine->recorded_step = kind == SHD_PROGRAM_TRAIN ? step : step - 1;
    shd_recorder_enter(engine->recorder, activity_of[kind], engine->recorded_step);
}

sherd_status shd_engine_advance(shd_engine *engine, const shd_instruction **due) {
    *due = NULL;
    if (!engine->program) return SHERD_OK;
    for (; !engine->due && engine->next < engine->program->instruction_count; engine->next++) {
        const shd_instruction *instruction = &engine->program->instructions[engine->next];
        bool ran;
        SHD_TRY(announce(engine, instruction));
        if (instruction->queue != SHD_QUEUE_COMPUTE) {
            SHD_TRY(submit(engine, instruction));
            SHD_TRY(progress(engine, &ran));
            continue;
        }
        SHD_TRY(progress(engine, &ran));
        SHD_TRY(hold_until_ready(engine, instruction));
        if (engine->device) shd_device_order(engine, instruction);
        engine->due = is_callers(instruction);
        if (engine->due) break;
        SHD_TRY(run(engine, instruction));
    }
    if (engine->due)
        *due = &engine->program->instructions[engine->next];
    else
        SHD_TRY(finish(engine));
    return SHERD_OK;
}

const shd_instruction *shd_engine_next_compute(const shd_engine *engine) {
    if (!engine->program) return NULL;
    for (int32_t i = engine->next; i < engine->program->instruction_count; i++) {
        const shd_instruction *instruction = &engine->program->instructions[i];
        if (is_callers(instruction)) return instruction;
    }
    return NULL;
}

sherd_status shd_engine_computed(shd_engine *engine) {
    engine->times.compute_ms += (double)(shd_clock_ns() - engine->compute_since_ns) * 1e-6;
    engine->due = false;
    bool ran;
    SHD_TRY(run(engine, &engine->program->instructions[engine->next++]));
    return progress(engine, &ran);
}
