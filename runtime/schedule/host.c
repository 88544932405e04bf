/* See host.h. */
#include "runtime/schedule/host.h"

#include <inttypes.h>
#include <stdio.h>

int32_t shd_host_lingering(const shd_host *host) {
    return host->programs[0]->kind == SHD_PROGRAM_EVALUATE ? host->plans[0]->gradient_count : 0;
}

int32_t shd_host_lingering_unit(const shd_host *host, int32_t i) {
    const shd_plan *plan = host->plans[0];
    return plan->gradients[plan->gradient_count - 1 - i].unit_index; /* gradients come in falling order of units */
}

shd_name shd_name_instruction(const shd_host *host, int32_t rank, int32_t index) {
    const shd_instruction *instruction = &host->programs[rank]->instructions[index];
    bool has_unit = instruction->unit_index >= 0 && instruction->unit_index < host->plans[rank]->unit_count;
    char micro_step[32] = "";
    if (instruction->micro_step >= 0)
        snprintf(micro_step, sizeof micro_step, ", micro-step %" PRId32, instruction->micro_step);
    shd_name name;
    snprintf(name.text, sizeof name.text, "instruction %" PRId32 " (%s%s%s%s) of rank %" PRId32, index,
             shd_op_text(instruction->op), has_unit ? " " : "",
             has_unit ? host->plans[rank]->unit_names[instruction->unit_index] : "", micro_step, rank);
    return name;
}

shd_name shd_name_moment(const shd_host *host, int32_t actor, int32_t time) {
    int32_t rank = actor / SHD_QUEUES, at = time;
    shd_queue_id queue = (shd_queue_id)(actor % SHD_QUEUES);
    if (queue == SHD_QUEUE_COMPUTE) {
        int32_t lingering = shd_host_lingering(host);
        if (at <= lingering) {
            shd_name name;
            const char *unit = host->plans[rank]->unit_names[shd_host_lingering_unit(host, at - 1)];
            snprintf(name.text, sizeof name.text, "the last step's UPDATE %s of rank %" PRId32, unit, rank);
            return name;
        }
        at -= lingering;
    }
    const shd_program *program = host->programs[rank];
    for (;;)
        for (int32_t i = 0; i < program->instruction_count; i++)
            if (program->instructions[i].queue == queue && --at == 0) return shd_name_instruction(host, rank, i);
}

shd_name shd_name_buffer(const shd_plan *plan, int32_t buffer_index) {
    const shd_buffer *buffer = &plan->buffers[buffer_index];
    const char *kind = shd_buffer_kind_text(buffer->kind);
    shd_name name;
    switch (buffer->kind) {
    case SHD_BUFFER_PARAMETERS:
    case SHD_BUFFER_SHARD:
    case SHD_BUFFER_MASTER:
    case SHD_BUFFER_ACCUMULATOR:
    case SHD_BUFFER_STATE: {
        const shd_group *group = &plan->groups[buffer->owner_index];
        snprintf(name.text, sizeof name.text, "%s of %s (%s)", kind, plan->unit_names[group->unit_index],
                 group->trainable ? "trainable" : "frozen");
        break;
    }
    case SHD_BUFFER_OUTPUT:
    case SHD_BUFFER_ACTIVATIONS:
    case SHD_BUFFER_REMADE:
        snprintf(name.text, sizeof name.text, "%s of %s", kind, plan->unit_names[buffer->owner_index]);
        break;
    case SHD_BUFFER_GATHER_SLOT:
    case SHD_BUFFER_GRADIENT_SLOT:
    case SHD_BUFFER_ROUNDED_SLOT:
        snprintf(name.text, sizeof name.text, "%s %" PRId32, kind, buffer->owner_index);
        break;
    default: snprintf(name.text, sizeof name.text, "%s", kind);
    }
    return name;
}
