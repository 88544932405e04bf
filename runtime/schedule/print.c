/* A program for people to read: one line an instruction.
 *
 *    17 compute BACKWARD h.0, micro-step 1; waits 12; awaits CONSUMED h.1 ≥ 1; signals PUBLISHED h.0
 *
 * A target above 0 counts raises within the run; "of earlier runs" stands for target 0. */
#include "runtime/schedule/program.h"

#include <inttypes.h>

/* "; title " before the first of several entries, ", " before the others. */
static void print_separator(int32_t i, const char *title, FILE *out) {
    if (i == 0)
        fprintf(out, "; %s ", title);
    else
        fputs(", ", out);
}

static void print_order(const shd_program *program, const shd_plan *plan, const shd_instruction *instruction,
                        FILE *out) {
    for (int32_t i = 0; i < instruction->waits.count; i++) {
        print_separator(i, "waits", out);
        fprintf(out, "%" PRId32, program->waits[instruction->waits.first + i]);
    }
    for (int32_t i = 0; i < instruction->awaits.count; i++) {
        const shd_await *await = &program->awaits[instruction->awaits.first + i];
        print_separator(i, "awaits", out);
        fprintf(out, "%s %s", shd_counter_text(await->counter), plan->unit_names[await->unit_index]);
        if (await->target > 0)
            fprintf(out, " %" PRId32, await->target);
        else
            fputs(" of earlier runs", out);
    }
    for (int32_t i = 0; i < instruction->signals.count; i++) {
        const shd_signal *signal = &program->signals[instruction->signals.first + i];
        print_separator(i, "signals", out);
        fprintf(out, "%s %s", shd_counter_text(signal->counter), plan->unit_names[signal->unit_index]);
    }
}

static void print_instruction(const shd_program *program, const shd_plan *plan, int32_t index, FILE *out) {
    const shd_instruction *instruction = &program->instructions[index];
    fprintf(out, "%5" PRId32 " %-7s %s", index, shd_queue_text(instruction->queue), shd_op_text(instruction->op));
    if (instruction->unit_index >= 0) fprintf(out, " %s", plan->unit_names[instruction->unit_index]);
    if (instruction->micro_step >= 0) fprintf(out, ", micro-step %" PRId32, instruction->micro_step);
    if (instruction->bytes > 0) fprintf(out, ", %" PRId64 " bytes", instruction->bytes);
    print_order(program, plan, instruction, out);
    fputc('\n', out);
}

void shd_program_print(const shd_program *program, const shd_plan *plan, FILE *out) {
    for (int32_t i = 0; i < program->instruction_count; i++) print_instruction(program, plan, i, out);
}
