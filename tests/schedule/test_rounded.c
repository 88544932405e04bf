/* Programs whose gradients are exchanged in 16 bits, and those of fp16: ROUND's place, what the verifier says when it is
 * damaged, and updates that wait for the verdict. */
#include "tests/schedule/cases.h"

#include <criterion/criterion.h>
#include <string.h>

static const case_policy policy = {
    .world_size = 3, .stage = 2, .gradient_slots = 3, .parameter_dtype = SHERD_BF16, .reduce_dtype = SHERD_BF16};

/* The n-th instruction of this kind, from 0. */
static int32_t find(const shd_program *program, shd_op op, int32_t unit, int32_t n) {
    for (int32_t i = 0; i < program->instruction_count; i++)
        if (program->instructions[i].op == op && program->instructions[i].unit_index == unit && n-- == 0) return i;
    cr_assert_fail("no %s of unit %d", shd_op_text(op), unit);
    return -1;
}

/* The verifier refuses the damaged programs, and its cause has all of `words`. */
static void expect_refusal(case_programs *made, const char *const *words) {
    cr_assert_eq(case_verify(made, NULL), SHERD_INTERNAL);
    for (; *words; words++) cr_assert(strstr(sherd_last_error(), *words), "%s: %s", *words, sherd_last_error());
    case_destroy(made);
}

Test(rounded, a_gradient_is_rounded_once_a_micro_step_after_its_last_writer_and_before_its_reduce) {
    case_programs made = case_compile(CASE_TIED, policy, SHD_PROGRAM_TRAIN, 3, false);
    const shd_program *program = made.programs[1];
    for (int32_t i = 0; i < made.plans[1]->gradient_count; i++) {
        int32_t unit = made.plans[1]->gradients[i].unit_index;
        for (int32_t k = 0; k < 3; k++) {
            int32_t round = find(program, SHD_OP_ROUND, unit, k);
            const shd_instruction *instruction = &program->instructions[round];
            cr_assert(instruction->micro_step == k && instruction->queue == SHD_QUEUE_COMPUTE);
            cr_assert_lt(find(program, SHD_OP_BACKWARD, unit, k), round);
            cr_assert_lt(round, find(program, SHD_OP_REDUCE, unit, k));
            cr_assert_eq(instruction->signals.count, 1);
            cr_assert_eq(program->signals[instruction->signals.first].counter, SHD_COUNTER_PUBLISHED);
            cr_assert_eq(program->instructions[find(program, SHD_OP_BACKWARD, unit, k)].signals.count, 0);
        }
    }
    case_destroy(&made);
}

Test(rounded, collectives_move_half_the_bytes) {
    case_policy full = policy;
    full.parameter_dtype = full.reduce_dtype = SHERD_FP32;
    case_programs half_made = case_compile(CASE_FROZEN, policy, SHD_PROGRAM_TRAIN, 1, true);
    case_programs full_made = case_compile(CASE_FROZEN, full, SHD_PROGRAM_TRAIN, 1, true);
    for (int32_t unit = 0; unit < 3; unit++)
        for (int i = 0; i < 2; i++) {
            shd_op op = i ? SHD_OP_REDUCE : SHD_OP_GATHER;
            int64_t half = half_made.programs[0]->instructions[find(half_made.programs[0], op, unit, 0)].bytes;
            int64_t whole = full_made.programs[0]->instructions[find(full_made.programs[0], op, unit, 0)].bytes;
            cr_assert(half > 0 && 2 * half == whole, "%s of unit %d", shd_op_text(op), unit);
        }
    case_destroy(&half_made);
    case_destroy(&full_made);
}

Test(rounded, peers_that_still_read_a_slot_are_awaited) {
    case_programs made = case_compile(CASE_UNTIED, policy, SHD_PROGRAM_TRAIN, 2, true);
    int32_t round = find(made.programs[0], SHD_OP_ROUND, 2, 1);
    cr_assert_gt(made.programs[0]->instructions[round].awaits.count, 0);
    for (int32_t r = 0; r < 3; r++) made.programs[r]->instructions[round].awaits.count = 0;
    expect_refusal(&made, (const char *const[]){"(ROUND head, micro-step 1)", "writes rounded_slot",
                                                "(REDUCE head, micro-step 0)", "nothing orders the two", NULL});
}

Test(rounded, a_slot_is_not_read_before_it_is_rounded) {
    case_programs made = case_compile(CASE_UNTIED, policy, SHD_PROGRAM_TRAIN, 1, true);
    int32_t reduce = find(made.programs[0], SHD_OP_REDUCE, 1, 0);
    for (int32_t r = 0; r < 3; r++) made.programs[r]->instructions[reduce].awaits.count = 0;
    expect_refusal(&made,
                   (const char *const[]){"(REDUCE block", "rounded_slot", "nothing before it has written", NULL});
}

Test(rounded, a_gradient_that_is_published_when_it_is_written_but_not_rounded_is_found) {
    case_programs made = case_compile(CASE_UNTIED, policy, SHD_PROGRAM_TRAIN, 1, true);
    for (int32_t r = 0; r < 3; r++) {
        shd_instruction *instructions = made.programs[r]->instructions;
        int32_t backward = find(made.programs[r], SHD_OP_BACKWARD, 1, 0),
                round = find(made.programs[r], SHD_OP_ROUND, 1, 0);
        instructions[backward].signals = instructions[round].signals;
        instructions[round].signals.count = 0;
    }
    expect_refusal(&made, (const char *const[]){"rounded_slot", "(ROUND block", "nothing orders the two", NULL});
}

Test(rounded, what_backward_has_not_written_cannot_be_rounded) {
    case_programs made = case_compile(CASE_UNTIED, policy, SHD_PROGRAM_TRAIN, 1, true);
    for (int32_t r = 0; r < 3; r++)
        made.programs[r]->instructions[find(made.programs[r], SHD_OP_BACKWARD, 2, 0)].accesses.count = 0;
    expect_refusal(&made,
                   (const char *const[]){"(ROUND head", "reads gradient_slot", "nothing before it has written", NULL});
}

Test(rounded, masters_are_read_by_norms_and_updates_alone_and_copies_written_unread) {
    case_programs made = case_compile(CASE_UNTIED, policy, SHD_PROGRAM_TRAIN, 1, true);
    const shd_plan *plan = made.plans[0];
    const shd_program *program = made.programs[0];
    int32_t master_accesses = 0;
    for (int32_t i = 0; i < program->instruction_count; i++)
        for (int32_t a = 0; a < program->instructions[i].accesses.count; a++) {
            const shd_access *access = &program->accesses[program->instructions[i].accesses.first + a];
            shd_buffer_kind kind = plan->buffers[access->buffer_index].kind;
            bool updates = program->instructions[i].op == SHD_OP_UPDATE;
            if (kind == SHD_BUFFER_MASTER) {
                bool looks = program->instructions[i].op == SHD_OP_NORM && access->mode == SHD_ACCESS_READ;
                cr_assert(updates || looks);
                master_accesses++;
            }
            if (kind == SHD_BUFFER_PARAMETERS && updates) cr_assert_eq(access->mode, SHD_ACCESS_WRITE);
        }
    cr_assert_eq(master_accesses, 3 * plan->gradient_count);
    case_destroy(&made);
}

/* A step of fp16 may be skipped: no update may come before that is known, clipping or not. */
Test(rounded, updates_of_fp16_follow_the_verdict_without_clipping_too) {
    for (int fp16 = 0; fp16 <= 1; fp16++)
        for (int32_t stage = 0; stage <= 3; stage++) {
            case_policy with = policy;
            with.stage = stage;
            with.parameter_dtype = fp16 ? SHERD_FP16 : SHERD_BF16;
            case_programs made = case_compile(CASE_TIED, with, SHD_PROGRAM_TRAIN, 2, false);
            cr_assert_eq(case_verify(&made, NULL), SHERD_OK, "%s", sherd_last_error());
            const shd_program *program = made.programs[0];
            int32_t verdict = find(program, SHD_OP_VERDICT, -1, 0);
            cr_assert_eq(program->late_updates, fp16);
            for (int32_t unit = 0; unit < 3; unit++)
                cr_assert_eq(find(program, SHD_OP_UPDATE, unit, 0) > verdict, fp16, "stage %d", stage);
            case_destroy(&made);
        }
}
