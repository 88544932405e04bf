/* From plan and policy to the step program. The order of a micro-step's event:
 *
 *   GATHER              the residencies that are issued now
 *   NORM, UPDATE        last micro-step: the gradients that were complete some events ago
 *   WAIT                the residencies that begin
 *   FORWARD, BACKWARD
 *   RELEASE             the residencies that end
 *   ROUND, REDUCE       the gradients that are complete; last micro-step at stage 0: GATHER_GRADIENT
 *   REDUCE_REPLICAS, GATHER_GRADIENT
 *                       last micro-step, with replicas: those that were complete one event ago, and two
 *
 * Everything is stated as it is needed (wait, await); the builder leaves out what is implied. Two rules keep the list
 * free of dead ends: every need names an earlier instruction, and all ranks have the same list.
 *
 * What needs no statement: all REDUCEs of a run are before its VERDICT (through NORM), and what follows them over the
 * replicas before its end (through UPDATE), so gradient slots, accumulators and state are free when the next run
 * begins; COUNT ends after every rank has begun the run, so nobody still reads peers' memory for the last one. */
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/schedule/access.h"
#include "runtime/schedule/builder.h"
#include "runtime/schedule/owners.h"

/* Backward events between a gradient's last write and what follows its REDUCE, to leave each time: the sum over the
 * replicas waits for a rank that may be on another host. */
enum {
    NORM_DELAY_EVENTS = 2,
    REPLICAS_REDUCE_DELAY_EVENTS = 1,
    REPLICAS_GATHER_DELAY_EVENTS = 2,
    REPLICAS_NORM_DELAY_EVENTS = 4
};

/* The last instruction of each kind for a unit; -1: none yet. */
typedef struct unit_trace {
    int32_t save, gather, published, reduce, reduce_replicas, gather_gradient, direct, update;
} unit_trace;

typedef struct compiler {
    shd_builder builder;
    const shd_plan *plan;
    shd_program_kind kind;
    int32_t micro_steps;
    bool late_updates;
    int32_t lingering;   /* the first late gradient whose update may still be under way when a run is over */
    bool many;           /* ranks in the shard group: there is something to gather */
    bool replicated;     /* there are replicas, whose sums are added up */
    int32_t count_index; /* COUNT */
    int32_t last_save;   /* the last SAVE; -1: none */
    unit_trace *units;
    int32_t *vacated;    /* by slot buffer: the RELEASE or REDUCE that ended its last tenancy; -1: none in this run */
    int32_t *regathered; /* the GATHERs that follow an UPDATE, in order */
    int32_t regathered_count;
    int32_t normed_count; /* the first so many of plan->gradients have their NORM */
} compiler;

/* --- collectives ------------------------------------------------------------------------------ */

/* Of shards of a group whose elements are of type `dtype`. */
static int64_t received_bytes(const shd_plan *plan, int32_t group, sherd_dtype dtype) {
    if (group < 0) return 0;
    return (shd_policy_split(&plan->policy) - 1) * plan->groups[group].shard_count * shd_dtype_bytes(dtype);
}

/* The largest part of the unit's shard, from every other replica. */
static int64_t replicated_bytes(const shd_plan *plan, int32_t u) {
    return (plan->policy.replicas - 1) * plan->groups[plan->units[u].trainable_group].part_count * SHD_FLOAT_BYTES;
}

/* Whether the update of `u` in the last step may still be under way. TRAIN without late updates knows that they came
 * before VERDICT; a prologue follows none. */
static bool update_may_linger(const compiler *c, int32_t u) {
    if (c->kind != SHD_PROGRAM_TRAIN) return c->kind == SHD_PROGRAM_EVALUATE;
    for (int32_t i = c->lingering; c->late_updates && i < c->plan->gradient_count; i++)
        if (shd_late_gradient(c->plan, i)->unit_index == u) return true;
    return false;
}

static int32_t emit_gather(compiler *c, int32_t u, int32_t residency, int32_t micro_step, bool with_frozen) {
    const shd_unit_plan *unit = &c->plan->units[u];
    unit_trace *trace = &c->units[u];
    sherd_dtype dtype = c->plan->policy.parameter_dtype;
    shd_builder_open(&c->builder, (shd_instruction){
                                      .op = SHD_OP_GATHER,
                                      .queue = SHD_QUEUE_GATHER,
                                      .unit_index = u,
                                      .micro_step = micro_step,
                                      .residency = residency,
                                      .bytes = received_bytes(c->plan, unit->trainable_group, dtype) +
                                               (with_frozen ? received_bytes(c->plan, unit->frozen_group, dtype) : 0)});
    int32_t slot = residency < 0 ? -1 : c->plan->gathers[residency].slot_buffer;
    if (slot >= 0) shd_builder_wait(&c->builder, c->vacated[slot]);
    if (trace->update >= 0)
        shd_builder_await(&c->builder, SHD_COUNTER_UPDATED, u, 1, trace->update);
    else if (trace->gather < 0 && unit->gradient_bytes > 0 && update_may_linger(c, u))
        shd_builder_await(&c->builder, SHD_COUNTER_UPDATED, u, 0, -1);
    shd_access_gather(&c->builder, u, residency, with_frozen);
    return trace->gather = shd_builder_close(&c->builder);
}

static void emit_wait(compiler *c, int32_t u, int32_t residency, int32_t micro_step, int32_t gather) {
    shd_builder_open(&c->builder, (shd_instruction){.op = SHD_OP_WAIT,
                                                    .queue = SHD_QUEUE_COMPUTE,
                                                    .unit_index = u,
                                                    .micro_step = micro_step,
                                                    .residency = residency});
    shd_builder_wait(&c->builder, gather);
    shd_access_wait(&c->builder, u, residency);
    shd_builder_close(&c->builder);
}

/* Awaits that the slot, on every rank, has been read by those who were to read its last tenant: the REDUCE `vacated`. */
static void await_vacated(compiler *c, int32_t vacated) {
    if (vacated < 0) return;
    const shd_instruction *reduce = &c->builder.program->instructions[vacated];
    shd_builder_await(&c->builder, SHD_COUNTER_CONSUMED, reduce->unit_index, reduce->micro_step + 1, vacated);
}

static void emit_round(compiler *c, int32_t gradient, int32_t micro_step) {
    if (!c->plan->rounded) return;
    int32_t u = c->plan->gradients[gradient].unit_index;
    shd_builder_open(&c->builder, (shd_instruction){.op = SHD_OP_ROUND,
                                                    .queue = SHD_QUEUE_COMPUTE,
                                                    .unit_index = u,
                                                    .micro_step = micro_step,
                                                    .residency = gradient});
    await_vacated(c, c->vacated[c->plan->rounded[gradient].slot_buffer]);
    shd_builder_signal(&c->builder, SHD_COUNTER_PUBLISHED, u);
    shd_access_round(&c->builder, u);
    c->units[u].published = shd_builder_close(&c->builder);
}

static void emit_reduce(compiler *c, int32_t gradient, int32_t micro_step) {
    const shd_residency *residency = shd_exchanged_gradient(c->plan, gradient);
    sherd_dtype dtype = c->plan->policy.reduce_dtype;
    int32_t u = residency->unit_index;
    shd_builder_open(&c->builder,
                     (shd_instruction){.op = SHD_OP_REDUCE,
                                       .queue = SHD_QUEUE_REDUCE,
                                       .unit_index = u,
                                       .micro_step = micro_step,
                                       .residency = gradient,
                                       .first_reduce = micro_step == 0,
                                       .bytes = received_bytes(c->plan, c->plan->units[u].trainable_group, dtype)});
    shd_builder_await(&c->builder, SHD_COUNTER_PUBLISHED, u, micro_step + 1, c->units[u].published);
    shd_builder_signal(&c->builder, SHD_COUNTER_CONSUMED, u);
    if (c->replicated && micro_step == c->micro_steps - 1) shd_builder_signal(&c->builder, SHD_COUNTER_REDUCED, u);
    shd_access_reduce(&c->builder, u, micro_step == 0);
    c->units[u].reduce = c->vacated[residency->slot_buffer] = shd_builder_close(&c->builder);
}

static void emit_reduce_replicas(compiler *c, int32_t u) {
    shd_builder_open(&c->builder, (shd_instruction){.op = SHD_OP_REDUCE_REPLICAS,
                                                    .queue = SHD_QUEUE_REDUCE,
                                                    .unit_index = u,
                                                    .micro_step = -1,
                                                    .residency = -1,
                                                    .bytes = replicated_bytes(c->plan, u)});
    shd_builder_await(&c->builder, SHD_COUNTER_REDUCED, u, 1, c->units[u].reduce);
    shd_builder_signal(&c->builder, SHD_COUNTER_SUMMED, u);
    shd_access_reduce_replicas(&c->builder, u);
    c->units[u].reduce_replicas = shd_builder_close(&c->builder);
}

static void emit_gather_gradient(compiler *c, int32_t u) {
    int64_t bytes = c->replicated ? replicated_bytes(c->plan, u)
                                  : received_bytes(c->plan, c->plan->units[u].trainable_group, SHERD_FP32);
    shd_builder_open(&c->builder, (shd_instruction){.op = SHD_OP_GATHER_GRADIENT,
                                                    .queue = c->replicated ? SHD_QUEUE_REDUCE : SHD_QUEUE_GATHER,
                                                    .unit_index = u,
                                                    .micro_step = -1,
                                                    .residency = -1,
                                                    .bytes = bytes});
    if (c->replicated)
        shd_builder_await(&c->builder, SHD_COUNTER_SUMMED, u, 1, c->units[u].reduce_replicas);
    else
        shd_builder_await(&c->builder, SHD_COUNTER_CONSUMED, u, c->micro_steps, c->units[u].reduce);
    shd_access_gather_gradient(&c->builder, u);
    c->units[u].gather_gradient = shd_builder_close(&c->builder);
}

static int32_t emit_exchange(compiler *c, shd_op op, shd_queue_id queue) {
    shd_builder_open(&c->builder,
                     (shd_instruction){.op = op, .queue = queue, .unit_index = -1, .micro_step = -1, .residency = -1});
    return shd_builder_close(&c->builder);
}

/* --- norm and update -------------------------------------------------------------------------- */

static void emit_norm(compiler *c, int32_t u) {
    shd_builder_open(
        &c->builder,
        (shd_instruction){
            .op = SHD_OP_NORM, .queue = SHD_QUEUE_COMPUTE, .unit_index = u, .micro_step = -1, .residency = -1});
    shd_builder_wait(&c->builder, c->replicated ? c->units[u].reduce_replicas : c->units[u].reduce);
    shd_access_norm(&c->builder, u);
    shd_builder_close(&c->builder);
}

static void emit_update(compiler *c, int32_t u) {
    const shd_policy *policy = &c->plan->policy;
    bool gathered = c->many && policy->stage > 0;
    shd_builder_open(
        &c->builder,
        (shd_instruction){
            .op = SHD_OP_UPDATE, .queue = SHD_QUEUE_COMPUTE, .unit_index = u, .micro_step = -1, .residency = -1});
    shd_builder_wait(&c->builder, c->units[u].save);
    shd_builder_wait(&c->builder, c->units[u].gather_gradient);
    if (shd_steps_travel(c->plan, u)) shd_builder_await(&c->builder, SHD_COUNTER_DIRECTED, u, 1, c->units[u].direct);
    if (gathered || (c->many && shd_unit_is_owned(c->plan, u))) shd_builder_signal(&c->builder, SHD_COUNTER_UPDATED, u);
    shd_access_update(&c->builder, u);
    c->units[u].update = shd_builder_close(&c->builder);
    if (gathered && policy->stage < 3 && !policy->gather_shared)
        c->regathered[c->regathered_count++] = emit_gather(c, u, -1, -1, false);
}

/* The gradients that were complete the delay's events before `event`. */
static void emit_norms_until(compiler *c, int32_t event) {
    int32_t delay = c->replicated ? REPLICAS_NORM_DELAY_EVENTS : NORM_DELAY_EVENTS;
    while (c->normed_count < c->plan->gradient_count &&
           c->plan->gradients[c->normed_count].last_event <= event - delay) {
        int32_t u = c->plan->gradients[c->normed_count++].unit_index;
        emit_norm(c, u);
        if (!c->late_updates) emit_update(c, u);
    }
}

/* --- events ----------------------------------------------------------------------------------- */

static void emit_compute(compiler *c, int32_t micro_step, int32_t event) {
    const shd_plan *plan = c->plan;
    bool backward = event >= plan->unit_count;
    int32_t u = backward ? 2 * plan->unit_count - 1 - event : event;
    shd_builder_open(&c->builder, (shd_instruction){.op = backward ? SHD_OP_BACKWARD : SHD_OP_FORWARD,
                                                    .queue = SHD_QUEUE_COMPUTE,
                                                    .unit_index = u,
                                                    .micro_step = micro_step,
                                                    .residency = c->many ? shd_gather_find(plan, u, event) : -1});
    if (backward) {
        shd_builder_wait(&c->builder, c->count_index);
        /* The slots that get a new tenant: the REDUCE that came last implies the others. */
        int32_t vacated = -1;
        for (int32_t i = 0; i < plan->gradient_count; i++) {
            const shd_residency *gradient = &plan->gradients[i];
            if (gradient->first_event == event && c->vacated[gradient->slot_buffer] > vacated)
                vacated = c->vacated[gradient->slot_buffer];
        }
        await_vacated(c, vacated);
        if (shd_gradient_find(plan, u) >= 0 && !plan->rounded)
            shd_builder_signal(&c->builder, SHD_COUNTER_PUBLISHED, u);
    }
    shd_access_compute(&c->builder, backward ? SHD_OP_BACKWARD : SHD_OP_FORWARD, event);
    int32_t index = shd_builder_close(&c->builder);
    if (backward) c->units[u].published = index;
}

/* Before the backward of a unit whose activations were not kept. */
static void emit_recompute(compiler *c, int32_t micro_step, int32_t event) {
    const shd_plan *plan = c->plan;
    int32_t u = 2 * plan->unit_count - 1 - event;
    if (event < plan->unit_count || !plan->units[u].recomputed) return;
    shd_builder_open(&c->builder, (shd_instruction){.op = SHD_OP_RECOMPUTE,
                                                    .queue = SHD_QUEUE_COMPUTE,
                                                    .unit_index = u,
                                                    .micro_step = micro_step,
                                                    .residency = c->many ? shd_gather_find(plan, u, event) : -1});
    shd_access_compute(&c->builder, SHD_OP_RECOMPUTE, event);
    shd_builder_close(&c->builder);
}

/* Stage 3: what the plan issues before this event. An evaluation ends with the forward half. */
static void emit_gathers(compiler *c, int32_t micro_step, int32_t event, int32_t event_count) {
    for (int32_t i = 0; i < c->plan->gather_count; i++) {
        const shd_residency *residency = &c->plan->gathers[i];
        if (residency->issue_event == event && residency->first_event < event_count)
            emit_gather(c, residency->unit_index, i, micro_step, true);
    }
}

static void emit_waits(compiler *c, int32_t micro_step, int32_t event) {
    for (int32_t i = 0; i < c->plan->gather_count; i++) {
        const shd_residency *residency = &c->plan->gathers[i];
        if (residency->first_event == event)
            emit_wait(c, residency->unit_index, i, micro_step, c->units[residency->unit_index].gather);
    }
}

static void emit_releases(compiler *c, int32_t micro_step, int32_t event, int32_t event_count) {
    for (int32_t i = 0; i < c->plan->gather_count; i++) {
        const shd_residency *residency = &c->plan->gathers[i];
        bool cut = event == event_count - 1 && residency->first_event <= event && residency->last_event > event;
        if (residency->last_event != event && !cut) continue;
        shd_builder_open(&c->builder, (shd_instruction){.op = SHD_OP_RELEASE,
                                                        .queue = SHD_QUEUE_COMPUTE,
                                                        .unit_index = residency->unit_index,
                                                        .micro_step = micro_step,
                                                        .residency = i});
        shd_access_release(&c->builder, residency->unit_index, i);
        int32_t index = shd_builder_close(&c->builder);
        if (residency->slot_buffer >= 0) c->vacated[residency->slot_buffer] = index;
    }
}

/* Shared parameters of stages 1 and 2: made readable once, before the first forward. */
static void emit_shared_gather(compiler *c, int32_t u) {
    if (c->plan->units[u].gathered_bytes == 0) return;
    emit_wait(c, u, -1, 0, emit_gather(c, u, -1, 0, true));
}

/* What event `event` of the last micro-step owes the replicas. */
static void emit_replicas(compiler *c, int32_t event) {
    for (int32_t i = 0; c->replicated && i < c->plan->gradient_count; i++) {
        const shd_residency *gradient = &c->plan->gradients[i];
        if (gradient->last_event == event - REPLICAS_REDUCE_DELAY_EVENTS) emit_reduce_replicas(c, gradient->unit_index);
        if (gradient->last_event == event - REPLICAS_GATHER_DELAY_EVENTS) emit_gather_gradient(c, gradient->unit_index);
    }
}

static void emit_event(compiler *c, int32_t micro_step, int32_t event, int32_t event_count) {
    const shd_policy *policy = &c->plan->policy;
    bool train = c->kind == SHD_PROGRAM_TRAIN;
    bool last = train && micro_step == c->micro_steps - 1;
    bool shared_once = c->many && policy->gather_shared && policy->stage < 3;
    if (c->many) emit_gathers(c, micro_step, event, event_count);
    if (shared_once && micro_step == 0 && event < c->plan->unit_count) emit_shared_gather(c, event);
    if (last) emit_norms_until(c, event);
    if (c->many) emit_waits(c, micro_step, event);
    emit_recompute(c, micro_step, event);
    emit_compute(c, micro_step, event);
    if (c->many) emit_releases(c, micro_step, event, event_count);
    for (int32_t i = 0; train && i < c->plan->gradient_count; i++) {
        if (c->plan->gradients[i].last_event != event) continue;
        emit_round(c, i, micro_step);
        emit_reduce(c, i, micro_step);
        if (last && c->many && policy->stage == 0) emit_gather_gradient(c, c->plan->gradients[i].unit_index);
    }
    if (last) emit_replicas(c, event);
}

/* --- saving ----------------------------------------------------------------------------------- */

static void emit_save(compiler *c, int32_t u) {
    shd_builder_open(
        &c->builder,
        (shd_instruction){
            .op = SHD_OP_SAVE, .queue = SHD_QUEUE_COPY, .unit_index = u, .micro_step = -1, .residency = -1});
    shd_access_save(&c->builder, u);
    c->units[u].save = c->last_save = shd_builder_close(&c->builder);
}

/* In the order in which updates will ask for them, then the units without. */
static void emit_saves(compiler *c) {
    for (int32_t i = 0; i < c->plan->gradient_count; i++)
        emit_save(c, (c->late_updates ? shd_late_gradient(c->plan, i) : &c->plan->gradients[i])->unit_index);
    for (int32_t u = 0; u < c->plan->unit_count; u++)
        if (c->units[u].save < 0) emit_save(c, u);
}

static void emit_commit(compiler *c) {
    shd_builder_open(
        &c->builder,
        (shd_instruction){
            .op = SHD_OP_COMMIT, .queue = SHD_QUEUE_COMPUTE, .unit_index = -1, .micro_step = -1, .residency = -1});
    shd_builder_wait(&c->builder, c->last_save);
    shd_builder_close(&c->builder);
}

/* --- late updates ----------------------------------------------------------------------------- */

static bool has_owned_states(const shd_plan *plan, int32_t u) {
    const shd_unit_plan *unit = &plan->units[u];
    for (int32_t t = unit->first_tensor; t < unit->first_tensor + unit->tensor_count; t++)
        for (int32_t s = 0; plan->places[t].whole && s < SHD_MAX_OWNED_STATES; s++)
            if (plan->places[t].state_counts[s] > 0) return true;
    return false;
}

static void emit_direct(compiler *c, int32_t i) {
    int32_t u = shd_late_gradient(c->plan, i)->unit_index;
    shd_builder_open(
        &c->builder,
        (shd_instruction){
            .op = SHD_OP_DIRECT, .queue = SHD_QUEUE_COMPUTE, .unit_index = u, .micro_step = -1, .residency = -1});
    if (has_owned_states(c->plan, u)) shd_builder_wait(&c->builder, c->units[u].save);
    if (c->replicated || shd_owners_need_peers(c->plan, u)) shd_builder_wait(&c->builder, c->units[u].gather_gradient);
    for (int32_t j = i - 1; j >= 0; j--) {
        int32_t before = shd_late_gradient(c->plan, j)->unit_index;
        if (shd_steps_overwrite(c->plan, u, before))
            shd_builder_await(&c->builder, SHD_COUNTER_UPDATED, before, 1, c->units[before].update);
    }
    if (shd_steps_travel(c->plan, u)) shd_builder_signal(&c->builder, SHD_COUNTER_DIRECTED, u);
    shd_access_direct(&c->builder, u);
    c->units[u].direct = shd_builder_close(&c->builder);
}

/* Where owners read accumulators of peers that are sums over replicas, it tells them that all have them. */
static void emit_verdict(compiler *c) {
    shd_builder_open(
        &c->builder,
        (shd_instruction){
            .op = SHD_OP_VERDICT, .queue = SHD_QUEUE_COMPUTE, .unit_index = -1, .micro_step = -1, .residency = -1});
    if (c->kind == SHD_PROGRAM_TRAIN && c->plan->has_owners && c->many && c->replicated)
        shd_builder_wait(&c->builder,
                         c->units[c->plan->gradients[c->plan->gradient_count - 1].unit_index].gather_gradient);
    shd_builder_close(&c->builder);
}

/* After VERDICT. */
static void emit_late_updates(compiler *c) {
    for (int32_t first = 0, end; first < c->plan->gradient_count && !c->builder.failed; first = end) {
        end = shd_late_window_end(c->plan, first);
        for (int32_t i = first; i < end; i++)
            if (shd_unit_is_owned(c->plan, shd_late_gradient(c->plan, i)->unit_index)) emit_direct(c, i);
        for (int32_t i = first; i < end; i++) emit_update(c, shd_late_gradient(c->plan, i)->unit_index);
    }
}

/* --- programs --------------------------------------------------------------------------------- */

static void emit_steps(compiler *c) {
    bool train = c->kind == SHD_PROGRAM_TRAIN, saves = train && c->plan->policy.async_saves;
    if (saves) emit_saves(c);
    int32_t event_count = train ? 2 * c->plan->unit_count : c->plan->unit_count;
    if (train) c->count_index = emit_exchange(c, SHD_OP_COUNT, SHD_QUEUE_REDUCE);
    for (int32_t k = 0; k < c->micro_steps && !c->builder.failed; k++)
        for (int32_t event = 0; event < event_count; event++) emit_event(c, k, event, event_count);
    for (int32_t event = event_count; train && event < event_count + REPLICAS_GATHER_DELAY_EVENTS; event++)
        emit_replicas(c, event);
    if (train) emit_norms_until(c, event_count + REPLICAS_NORM_DELAY_EVENTS);
    emit_verdict(c);
    if (train && c->late_updates) emit_late_updates(c);
    for (int32_t i = 0; i < c->regathered_count && !c->builder.failed; i++)
        emit_wait(c, c->builder.program->instructions[c->regathered[i]].unit_index, -1, -1, c->regathered[i]);
    if (saves) emit_commit(c);
}

static void emit_prologue(compiler *c) {
    const shd_policy *policy = &c->plan->policy;
    if (!c->many || policy->gather_shared || policy->stage == 0 || policy->stage == 3) return;
    for (int32_t u = 0; u < c->plan->unit_count; u++)
        if (c->plan->units[u].gathered_bytes > 0) emit_gather(c, u, -1, -1, true);
    for (int32_t u = 0; u < c->plan->unit_count; u++)
        if (c->plan->units[u].gathered_bytes > 0) emit_wait(c, u, -1, -1, c->units[u].gather);
}

static void emit(compiler *c) {
    switch (c->kind) {
    case SHD_PROGRAM_TRAIN:
    case SHD_PROGRAM_EVALUATE: emit_steps(c); return;
    case SHD_PROGRAM_PROLOGUE: emit_prologue(c); return;
    case SHD_PROGRAM_SAVE:
        emit_saves(c);
        emit_commit(c);
        return;
    case SHD_PROGRAM_KINDS: return;
    }
}

static bool compiler_init(compiler *c, const shd_plan *plan, shd_program_kind kind, int32_t micro_steps,
                          bool late_updates) {
    size_t units = (size_t)plan->unit_count, buffers = (size_t)plan->buffer_count;
    *c = (compiler){.plan = plan,
                    .kind = kind,
                    .micro_steps = micro_steps,
                    .late_updates = late_updates,
                    .many = shd_policy_split(&plan->policy) > 1,
                    .replicated = plan->policy.replicas > 1,
                    .count_index = -1,
                    .last_save = -1,
                    .units = shd_alloc(units, sizeof *c->units),
                    .vacated = shd_alloc(buffers, sizeof *c->vacated),
                    .regathered = shd_alloc(units, sizeof *c->regathered)};
    if (!c->units || !c->vacated || !c->regathered) return false;
    for (int32_t u = 0; u < plan->unit_count; u++) c->units[u] = (unit_trace){-1, -1, -1, -1, -1, -1, -1, -1};
    for (int32_t b = 0; b < plan->buffer_count; b++) c->vacated[b] = -1;
    c->lingering = shd_late_lingering(plan);
    shd_builder_init(&c->builder, plan, kind, micro_steps, late_updates);
    return true;
}

sherd_status shd_program_compile(const shd_plan *plan, shd_program_kind kind, int32_t micro_steps, bool late,
                                 shd_program **out) {
    if (kind < 0 || kind >= SHD_PROGRAM_KINDS)
        return shd_fail(SHERD_ARGUMENT, "there is no program of kind %d", (int)kind);
    if ((kind == SHD_PROGRAM_TRAIN || kind == SHD_PROGRAM_EVALUATE) && micro_steps < 1)
        return shd_fail(SHERD_ARGUMENT, "a program of %d micro-steps: at least 1 is needed", (int)micro_steps);
    compiler c;
    sherd_status status;
    bool late_updates = late || plan->has_owners || plan->policy.parameter_dtype == SHERD_FP16;
    if (compiler_init(&c, plan, kind, micro_steps, late_updates)) {
        emit(&c);
        status = shd_builder_finish(&c.builder, out);
    } else {
        status = shd_fail(SHERD_MEMORY, "no memory to compile a step program");
    }
    shd_free(c.units);
    shd_free(c.vacated);
    shd_free(c.regathered);
    return status;
}
