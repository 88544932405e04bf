/* See builder.h. */
#include "runtime/schedule/builder.h"

#include "runtime/base/memory.h"
#include "runtime/base/status.h"

static void learn(int32_t known[SHD_QUEUES], const int32_t more[SHD_QUEUES]) {
    for (int q = 0; q < SHD_QUEUES; q++)
        if (more[q] > known[q]) known[q] = more[q];
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
    builder->now = (shd_known){.own = {-1, -1, -1}, .all = {-1, -1, -1}};
    if (before >= 0) builder->now = builder->known[before];
}

static shd_instruction *opened(const shd_builder *builder) {
    return &builder->program->instructions[builder->program->instruction_count];
}

void shd_builder_wait(shd_builder *builder, int32_t index) {
    if (builder->failed || index < 0) return;
    shd_program *program = builder->program;
    if (builder->now.own[program->instructions[index].queue] >= index) return;
    if (!RESERVE(builder, program->waits, wait_capacity, program->wait_count)) return;
    program->waits[program->wait_count++] = index;
    opened(builder)->waits.count++;
    learn(builder->now.own, builder->known[index].own);
    learn(builder->now.all, builder->known[index].all);
}

void shd_builder_await(shd_builder *builder, shd_counter counter, int32_t unit, int32_t target, int32_t index) {
    if (builder->failed) return;
    shd_program *program = builder->program;
    /* One rank alone knows of all ranks what it knows of itself. */
    if (builder->plan->policy.world_size == 1) learn(builder->now.all, builder->now.own);
    if (index >= 0 && builder->now.all[program->instructions[index].queue] >= index) return;
    if (!RESERVE(builder, program->awaits, await_capacity, program->await_count)) return;
    program->awaits[program->await_count++] = (shd_await){.counter = counter, .unit_index = unit, .target = target};
    opened(builder)->awaits.count++;
    if (index < 0) return;
    learn(builder->now.own, builder->known[index].own);
    learn(builder->now.all, builder->known[index].all);
    learn(builder->now.all, builder->known[index].own);
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
    if (instruction->op == SHD_OP_COUNT || instruction->op == SHD_OP_VERDICT) learn(known->all, known->own);
    known->own[instruction->queue] = index;
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
