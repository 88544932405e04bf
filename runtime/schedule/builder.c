/* See builder.h. */
#include "runtime/schedule/builder.h"

#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <string.h>

static void learn(int32_t known[SHD_QUEUES], const int32_t more[SHD_QUEUES]) {
    for (int q = 0; q < SHD_QUEUES; q++)
        if (more[q] > known[q]) known[q] = more[q];
}

/* `more` is known of the own rank. What is done on all ranks is done in both smaller scopes, and what is done in one of
 * them is done on the own rank. */
static void learn_own(shd_known *known, const shd_known *more) {
    for (int scope = 0; scope < SHD_KNOWN_SCOPES; scope++) learn(known->done[scope], more->done[scope]);
}

/* Whom a counter binds: its scope, or the one with the same ranks that says more. */
static shd_scope scope_of(const shd_builder *builder, shd_counter counter) {
    shd_mesh mesh = shd_policy_mesh(&builder->plan->policy);
    shd_scope scope = shd_counter_scope(counter);
    int32_t count = shd_mesh_count(&mesh, scope);
    return count == 1 ? SHD_SCOPE_OWN : count == mesh.world_size ? SHD_SCOPE_ALL : scope;
}

/* `more` is known of every rank. */
static void learn_all(shd_known *known, const shd_known *more) {
    for (int scope = 0; scope < SHD_KNOWN_SCOPES; scope++) learn(known->done[SHD_SCOPE_ALL], more->done[scope]);
}

/* `more` is known of every rank in `scope`. Of each of them it says what is done in that rank's other scope; a shard
 * group and the replicas of all its places, or the replicas of a place and all their shard groups, are all ranks. */
static void learn_scope(shd_known *known, const shd_known *more, shd_scope scope) {
    learn_own(known, more);
    if (scope == SHD_SCOPE_OWN) return;
    if (scope == SHD_SCOPE_ALL) {
        learn_all(known, more);
        return;
    }
    learn(known->done[scope], more->done[SHD_SCOPE_OWN]);
    shd_scope other = scope == SHD_SCOPE_GROUP ? SHD_SCOPE_REPLICAS : SHD_SCOPE_GROUP;
    learn(known->done[SHD_SCOPE_ALL], more->done[other]);
}

/* Whether instruction `index` is known to be done on every rank of `scope`. */
static bool is_known(const shd_builder *builder, shd_scope scope, int32_t index) {
    shd_queue_id queue = builder->program->instructions[index].queue;
    return builder->now.done[scope][queue] >= index || builder->now.done[SHD_SCOPE_ALL][queue] >= index;
}

/* Makes room for one more entry. */
static bool reserve(shd_builder *builder, void **table, int32_t *capacity, int32_t count, size_t entry_bytes) {
    if (builder->failed) return false;
    if (count < *capacity) return true;
    int32_t grown = *capacity ? 2 * *capacity : 64;
    void *moved = *capacity > INT32_MAX / 2 ? NULL : shd_realloc(*table, (size_t)grown * entry_bytes);
    if (!moved) {
        builder->failed = true;
        return false;
    }
    *table = moved;
    *capacity = grown;
    return true;
}

#define RESERVE(builder, table, capacity, count)                                                                       \
    reserve(builder, (void **)&(table), &(builder)->capacity, count, sizeof *(table))

void shd_builder_init(shd_builder *builder, const shd_plan *plan, shd_program_kind kind, int32_t micro_steps,
                      bool late_updates) {
    *builder = (shd_builder){.plan = plan, .program = shd_alloc(1, sizeof *builder->program)};
    for (int q = 0; q < SHD_QUEUES; q++) builder->last[q] = -1;
    if (builder->program)
        *builder->program = (shd_program){.kind = kind, .micro_steps = micro_steps, .late_updates = late_updates};
    else
        builder->failed = true;
}

void shd_builder_open(shd_builder *builder, shd_instruction instruction) {
    if (builder->failed) return;
    shd_program *program = builder->program;
    if (!RESERVE(builder, program->instructions, instruction_capacity, program->instruction_count)) return;
    if (!RESERVE(builder, builder->known, known_capacity, program->instruction_count)) return;
    instruction.waits = (shd_run){.first = program->wait_count};
    instruction.awaits = (shd_run){.first = program->await_count};
    instruction.signals = (shd_run){.first = program->signal_count};
    instruction.accesses = (shd_run){.first = program->access_count};
    program->instructions[program->instruction_count] = instruction;

    int32_t before = builder->last[instruction.queue];
    memset(&builder->now, -1, sizeof builder->now);
    if (before >= 0) builder->now = builder->known[before];
}

static shd_instruction *opened(const shd_builder *builder) {
    return &builder->program->instructions[builder->program->instruction_count];
}

void shd_builder_wait(shd_builder *builder, int32_t index) {
    if (builder->failed || index < 0) return;
    shd_program *program = builder->program;
    if (is_known(builder, SHD_SCOPE_OWN, index)) return;
    if (!RESERVE(builder, program->waits, wait_capacity, program->wait_count)) return;
    program->waits[program->wait_count++] = index;
    opened(builder)->waits.count++;
    learn_own(&builder->now, &builder->known[index]);
}

void shd_builder_await(shd_builder *builder, shd_counter counter, int32_t unit, int32_t target, int32_t index) {
    if (builder->failed) return;
    shd_program *program = builder->program;
    shd_scope scope = scope_of(builder, counter);
    if (index >= 0 && is_known(builder, scope, index)) return;
    if (!RESERVE(builder, program->awaits, await_capacity, program->await_count)) return;
    program->awaits[program->await_count++] = (shd_await){.counter = counter, .unit_index = unit, .target = target};
    opened(builder)->awaits.count++;
    if (index >= 0) learn_scope(&builder->now, &builder->known[index], scope);
}

void shd_builder_signal(shd_builder *builder, shd_counter counter, int32_t unit) {
    if (builder->failed) return;
    shd_program *program = builder->program;
    if (!RESERVE(builder, program->signals, signal_capacity, program->signal_count)) return;
    program->signals[program->signal_count++] = (shd_signal){.counter = counter, .unit_index = unit};
    opened(builder)->signals.count++;
}

void shd_builder_access(shd_builder *builder, shd_access access) {
    if (builder->failed || access.buffer_index < 0 || access.byte_count == 0) return;
    shd_program *program = builder->program;
    if (!RESERVE(builder, program->accesses, access_capacity, program->access_count)) return;
    program->accesses[program->access_count++] = access;
    opened(builder)->accesses.count++;
}

int32_t shd_builder_close(shd_builder *builder) {
    if (builder->failed) return -1;
    const shd_instruction *instruction = opened(builder);
    int32_t index = builder->program->instruction_count++;
    shd_known *known = &builder->known[index];
    *known = builder->now;
    /* Its end tells of every rank's beginning. */
    if (instruction->op == SHD_OP_COUNT || instruction->op == SHD_OP_VERDICT) learn_all(known, &builder->now);
    known->done[SHD_SCOPE_OWN][instruction->queue] = index;
    builder->last[instruction->queue] = index;
    return index;
}

sherd_status shd_builder_finish(shd_builder *builder, shd_program **out) {
    shd_program *program = builder->program;
    size_t units = (size_t)builder->plan->unit_count;
    if (!builder->failed) program->raised = shd_alloc(SHD_COUNTERS * units, sizeof *program->raised);
    shd_free(builder->known);
    builder->known = NULL;
    builder->program = NULL;
    if (!program || !program->raised) {
        shd_program_destroy(program);
        return shd_fail(SHERD_MEMORY, "no memory for a step program");
    }
    for (int32_t i = 0; i < program->signal_count; i++)
        program->raised[(size_t)program->signals[i].counter * units + (size_t)program->signals[i].unit_index]++;
    *out = program;
    return SHERD_OK;
}
