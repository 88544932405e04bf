/* A program's texts, end and hash. */
#include "runtime/schedule/program.h"

#include "runtime/base/hash.h"
#include "runtime/base/memory.h"

const char *shd_op_text(shd_op op) {
    static const char *const texts[] = {
#define TEXT(name, text) [SHD_OP_##name] = text,
        SHD_OP_MAP(TEXT)
#undef TEXT
    };
    return op >= 0 && op < SHD_OPS ? texts[op] : "unknown";
}

const char *shd_queue_text(shd_queue_id queue) {
    static const char *const texts[SHD_QUEUES] = {
        [SHD_QUEUE_COMPUTE] = "compute",
        [SHD_QUEUE_GATHER] = "gather",
        [SHD_QUEUE_REDUCE] = "reduce",
        [SHD_QUEUE_COPY] = "copy",
    };
    return queue >= 0 && queue < SHD_QUEUES ? texts[queue] : "unknown";
}

const char *shd_counter_text(shd_counter counter) {
    static const char *const texts[SHD_COUNTERS] = {
        [SHD_COUNTER_UPDATED] = "UPDATED",  [SHD_COUNTER_PUBLISHED] = "PUBLISHED", [SHD_COUNTER_CONSUMED] = "CONSUMED",
        [SHD_COUNTER_REDUCED] = "REDUCED",  [SHD_COUNTER_SUMMED] = "SUMMED",

        [SHD_COUNTER_DIRECTED] = "DIRECTED"};
    return counter >= 0 && counter < SHD_COUNTERS ? texts[counter] : "unknown";
}

shd_scope shd_counter_scope(shd_counter counter) {
    return counter == SHD_COUNTER_REDUCED || counter == SHD_COUNTER_SUMMED ? SHD_SCOPE_REPLICAS : SHD_SCOPE_GROUP;
}

void shd_program_destroy(shd_program *program) {
    if (!program) return;
    shd_free(program->instructions);
    shd_free(program->waits);
    shd_free(program->awaits);
    shd_free(program->signals);
    shd_free(program->accesses);
    shd_free(program->raised);
    shd_free(program);
}

uint64_t shd_program_hash(const shd_program *program) {
    uint64_t hash = SHD_HASH(0, program->kind, program->micro_steps, program->late_updates, program->instruction_count,
                             program->wait_count, program->await_count, program->signal_count);
    for (int32_t i = 0; i < program->instruction_count; i++) {
        const shd_instruction *instruction = &program->instructions[i];
        hash = SHD_HASH(hash, instruction->op, instruction->queue, instruction->unit_index, instruction->micro_step,
                        instruction->residency, instruction->first_reduce, instruction->bytes, instruction->waits.count,
                        instruction->awaits.count, instruction->signals.count);
    }
    for (int32_t i = 0; i < program->wait_count; i++) hash = SHD_HASH(hash, program->waits[i]);
    for (int32_t i = 0; i < program->await_count; i++) {
        const shd_await *await = &program->awaits[i];
        hash = SHD_HASH(hash, await->counter, await->unit_index, await->target);
    }
    for (int32_t i = 0; i < program->signal_count; i++)
        hash = SHD_HASH(hash, program->signals[i].counter, program->signals[i].unit_index);
    return hash;
}
