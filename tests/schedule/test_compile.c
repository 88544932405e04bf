/* Programs against lists written by hand. A list is a line of tokens, a letter for the operation and the unit's number:
 *
 *   C COUNT   G GATHER   W WAIT   F FORWARD   B BACKWARD   X RELEASE   R REDUCE   N NORM   D GATHER_GRADIENT
 *   V VERDICT   U UPDATE */
#include "tests/schedule/cases.h"

#include "runtime/base/memory.h"
#include "shard/plan.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    char letter;
    shd_queue_id queue;
    bool receives;
} letters[SHD_OPS] = {
    [SHD_OP_COUNT] = {'C', SHD_QUEUE_REDUCE, false},          [SHD_OP_GATHER] = {'G', SHD_QUEUE_GATHER, true},
    [SHD_OP_WAIT] = {'W', SHD_QUEUE_COMPUTE, false},          [SHD_OP_FORWARD] = {'F', SHD_QUEUE_COMPUTE, false},
    [SHD_OP_BACKWARD] = {'B', SHD_QUEUE_COMPUTE, false},      [SHD_OP_RELEASE] = {'X', SHD_QUEUE_COMPUTE, false},
    [SHD_OP_REDUCE] = {'R', SHD_QUEUE_REDUCE, true},          [SHD_OP_NORM] = {'N', SHD_QUEUE_COMPUTE, false},
    [SHD_OP_GATHER_GRADIENT] = {'D', SHD_QUEUE_GATHER, true}, [SHD_OP_VERDICT] = {'V', SHD_QUEUE_COMPUTE, false},
    [SHD_OP_UPDATE] = {'U', SHD_QUEUE_COMPUTE, false},
};

static void spell(const shd_program *program, char *text) {
    for (int32_t i = 0; i < program->instruction_count; i++) {
        const shd_instruction *instruction = &program->instructions[i];
        if (i) *text++ = ' ';
        *text++ = letters[instruction->op].letter;
        if (instruction->unit_index >= 0) *text++ = (char)('0' + instruction->unit_index);
    }
    *text = 0;
}

/* Each case is compiled for every rank; `unit_bytes` is what one rank receives of each unit. */
static void expect(case_model model, case_policy policy, shd_program_kind kind, int32_t micro_steps, bool clip,
                   const int64_t unit_bytes[3], const char *list) {
    case_programs made = case_compile(model, policy, kind, micro_steps, clip);
    for (int32_t r = 0; r < made.rank_count; r++) {
        const shd_program *program = made.programs[r];
        char *text = malloc(3 * (size_t)program->instruction_count + 1);
        spell(program, text);
        cr_assert_str_eq(text, list, "stage %d, %s, %d micro-steps, clip %d:\n%s\nnot\n%s", policy.stage,
                         policy.shared ? "shared" : "copy", micro_steps, clip, text, list);
        free(text);
        for (int32_t i = 0; i < program->instruction_count; i++) {
            const shd_instruction *instruction = &program->instructions[i];
            cr_assert_eq(instruction->queue, letters[instruction->op].queue);
            cr_assert_eq(instruction->bytes,
                         letters[instruction->op].receives ? unit_bytes[instruction->unit_index] : 0,
                         "instruction %d of %s: %lld bytes", i, list, (long long)instruction->bytes);
        }
    }
    case_destroy(&made);
}

/* Untied: embed has 4384 + 544 elements, 20 blocks of 256; block 1168 + 68, 5 blocks; head 4369, 18 blocks. Two ranks:
 * shards of 10, 3 and 9 blocks; a rank receives the other's. Three ranks: shards of 7, 2 and 6, a rank receives two. */
static const int64_t two_ranks[] = {10 * 1024, 3 * 1024, 9 * 1024};
static const int64_t three_ranks[] = {2 * 7 * 1024, 2 * 2 * 1024, 2 * 6 * 1024};
static const int64_t one_rank[] = {0, 0, 0};

typedef struct list_case {
    int32_t micro_steps;
    bool clip;
    const char *list;
} list_case;

static void expect_all(case_policy policy, const list_case cases[4]) {
    for (int i = 0; i < 4; i++) {
        policy.world_size = 2;
        expect(CASE_UNTIED, policy, SHD_PROGRAM_TRAIN, cases[i].micro_steps, cases[i].clip, two_ranks, cases[i].list);
        policy.world_size = 3;
        expect(CASE_UNTIED, policy, SHD_PROGRAM_TRAIN, cases[i].micro_steps, cases[i].clip, three_ranks, cases[i].list);
    }
}

Test(compile, stage_0_reduces_every_micro_step_and_gathers_gradients_once) {
    static const list_case cases[] = {
        {1, true, "C F0 F1 F2 B2 R2 D2 B1 R1 D1 N2 B0 R0 D0 N1 N0 V U2 U1 U0"},
        {1, false, "C F0 F1 F2 B2 R2 D2 B1 R1 D1 N2 U2 B0 R0 D0 N1 U1 N0 U0 V"},
        {2, true, "C F0 F1 F2 B2 R2 B1 R1 B0 R0 F0 F1 F2 B2 R2 D2 B1 R1 D1 N2 B0 R0 D0 N1 N0 V U2 U1 U0"},
        {2, false, "C F0 F1 F2 B2 R2 B1 R1 B0 R0 F0 F1 F2 B2 R2 D2 B1 R1 D1 N2 U2 B0 R0 D0 N1 U1 N0 U0 V"},
    };
    expect_all((case_policy){.stage = 0, .gradient_slots = 3}, cases);
}

Test(compile, stages_1_and_2_with_copy_gather_what_was_updated) {
    static const list_case cases[] = {
        {1, true, "C F0 F1 F2 B2 R2 B1 R1 N2 B0 R0 N1 N0 V U0 G0 U1 G1 U2 G2 W0 W1 W2"},
        {1, false, "C F0 F1 F2 B2 R2 B1 R1 N2 U2 G2 B0 R0 N1 U1 G1 N0 U0 G0 V W2 W1 W0"},
        {2, true, "C F0 F1 F2 B2 R2 B1 R1 B0 R0 F0 F1 F2 B2 R2 B1 R1 N2 B0 R0 N1 N0 V U0 G0 U1 G1 U2 G2 W0 W1 W2"},
        {2, false, "C F0 F1 F2 B2 R2 B1 R1 B0 R0 F0 F1 F2 B2 R2 B1 R1 N2 U2 G2 B0 R0 N1 U1 G1 N0 U0 G0 V W2 W1 W0"},
    };
    expect_all((case_policy){.stage = 1, .gradient_slots = 3}, cases);
    expect_all((case_policy){.stage = 2, .gradient_slots = 3}, cases);
}

Test(compile, stages_1_and_2_shared_gather_before_the_first_forward) {
    static const list_case cases[] = {
        {1, true, "C G0 W0 F0 G1 W1 F1 G2 W2 F2 B2 R2 B1 R1 N2 B0 R0 N1 N0 V U0 U1 U2"},
        {1, false, "C G0 W0 F0 G1 W1 F1 G2 W2 F2 B2 R2 B1 R1 N2 U2 B0 R0 N1 U1 N0 U0 V"},
        {2, true, "C G0 W0 F0 G1 W1 F1 G2 W2 F2 B2 R2 B1 R1 B0 R0 F0 F1 F2 B2 R2 B1 R1 N2 B0 R0 N1 N0 V U0 U1 U2"},
        {2, false, "C G0 W0 F0 G1 W1 F1 G2 W2 F2 B2 R2 B1 R1 B0 R0 F0 F1 F2 B2 R2 B1 R1 N2 U2 B0 R0 N1 U1 N0 U0 V"},
    };
    expect_all((case_policy){.stage = 1, .gradient_slots = 3, .shared = true}, cases);
    expect_all((case_policy){.stage = 2, .gradient_slots = 3, .shared = true}, cases);
}

Test(compile, stage_3_gathers_and_releases_each_residency) {
    static const list_case cases[] = {
        {1, true, "C G0 G1 W0 F0 X0 G2 W1 F1 X1 W2 F2 G1 B2 X2 R2 G0 W1 B1 X1 R1 N2 W0 B0 X0 R0 N1 N0 V U0 U1 U2"},
        {1, false, "C G0 G1 W0 F0 X0 G2 W1 F1 X1 W2 F2 G1 B2 X2 R2 G0 W1 B1 X1 R1 N2 U2 W0 B0 X0 R0 N1 U1 N0 U0 V"},
        {2, true,
         "C G0 G1 W0 F0 X0 G2 W1 F1 X1 W2 F2 G1 B2 X2 R2 G0 W1 B1 X1 R1 W0 B0 X0 R0 "
         "G0 G1 W0 F0 X0 G2 W1 F1 X1 W2 F2 G1 B2 X2 R2 G0 W1 B1 X1 R1 N2 W0 B0 X0 R0 N1 N0 V U0 U1 U2"},
        {2, false,
         "C G0 G1 W0 F0 X0 G2 W1 F1 X1 W2 F2 G1 B2 X2 R2 G0 W1 B1 X1 R1 W0 B0 X0 R0 "
         "G0 G1 W0 F0 X0 G2 W1 F1 X1 W2 F2 G1 B2 X2 R2 G0 W1 B1 X1 R1 N2 U2 W0 B0 X0 R0 N1 U1 N0 U0 V"},
    };
    expect_all((case_policy){.stage = 3, .prefetch = 1, .gradient_slots = 3}, cases);
    expect_all((case_policy){.stage = 3, .prefetch = 1, .gradient_slots = 3, .shared = true}, cases);
}

Test(compile, prefetch_moves_gathers_earlier) {
    case_policy policy = {.world_size = 2, .stage = 3, .gradient_slots = 3};
    expect(CASE_UNTIED, policy, SHD_PROGRAM_TRAIN, 1, true, two_ranks,
           "C G0 W0 F0 X0 G1 W1 F1 X1 G2 W2 F2 B2 X2 R2 G1 W1 B1 X1 R1 G0 N2 W0 B0 X0 R0 N1 N0 V U0 U1 U2");
    policy.prefetch = 3;
    expect(CASE_UNTIED, policy, SHD_PROGRAM_TRAIN, 1, true, two_ranks,
           "C G0 G1 G2 W0 F0 X0 W1 F1 X1 G1 G0 W2 F2 B2 X2 R2 W1 B1 X1 R1 N2 W0 B0 X0 R0 N1 N0 V U0 U1 U2");
}

Test(compile, one_rank_gathers_nothing_at_any_stage) {
    for (int32_t stage = 0; stage <= 3; stage++) {
        case_policy policy = {.world_size = 1, .stage = stage, .prefetch = 1, .gradient_slots = 1};
        expect(CASE_UNTIED, policy, SHD_PROGRAM_TRAIN, 1, true, one_rank,
               stage == 0 ? "C F0 F1 F2 B2 R2 B1 R1 N2 B0 R0 N1 N0 V U2 U1 U0"
                          : "C F0 F1 F2 B2 R2 B1 R1 N2 B0 R0 N1 N0 V U0 U1 U2");
        expect(CASE_UNTIED, policy, SHD_PROGRAM_EVALUATE, 2, true, one_rank, "F0 F1 F2 F0 F1 F2 V");
        expect(CASE_UNTIED, policy, SHD_PROGRAM_PROLOGUE, 1, true, one_rank, "");
    }
}

Test(compile, an_evaluation_runs_forward_only) {
    case_policy policy = {.world_size = 2, .gradient_slots = 3, .prefetch = 1};
    expect(CASE_UNTIED, policy, SHD_PROGRAM_EVALUATE, 2, true, two_ranks, "F0 F1 F2 F0 F1 F2 V");
    policy.stage = 1;
    expect(CASE_UNTIED, policy, SHD_PROGRAM_EVALUATE, 2, true, two_ranks, "F0 F1 F2 F0 F1 F2 V");
    policy.stage = 3;
    expect(CASE_UNTIED, policy, SHD_PROGRAM_EVALUATE, 2, true, two_ranks,
           "G0 G1 W0 F0 X0 G2 W1 F1 X1 W2 F2 X2 G0 G1 W0 F0 X0 G2 W1 F1 X1 W2 F2 X2 V");
    policy.shared = true;
    expect(CASE_UNTIED, policy, SHD_PROGRAM_EVALUATE, 1, true, two_ranks, "G0 G1 W0 F0 X0 G2 W1 F1 X1 W2 F2 X2 V");
    policy.stage = 2;
    expect(CASE_UNTIED, policy, SHD_PROGRAM_EVALUATE, 2, true, two_ranks, "G0 W0 F0 G1 W1 F1 G2 W2 F2 F0 F1 F2 V");
}

Test(compile, a_prologue_gathers_only_where_full_copies_persist) {
    for (int32_t stage = 0; stage <= 3; stage++)
        for (int shared = 0; shared <= (stage > 0); shared++) {
            case_policy policy = {.world_size = 2, .stage = stage, .gradient_slots = 3, .shared = shared};
            bool gathers = !shared && (stage == 1 || stage == 2);
            expect(CASE_UNTIED, policy, SHD_PROGRAM_PROLOGUE, 1, true, two_ranks, gathers ? "G0 G1 G2 W0 W1 W2" : "");
        }
}

Test(compile, a_tied_unit_is_gathered_for_its_user_and_reduced_after_its_own_backward) {
    /* head reads embed at events 2 and 3; with prefetch 0 embed comes for 0, 2 to 3, and 5. Its gradient begins at
     * event 3. */
    case_policy policy = {.world_size = 2, .stage = 3, .gradient_slots = 3};
    static const int64_t bytes[] = {10 * 1024, 3 * 1024, 1024};
    expect(CASE_TIED, policy, SHD_PROGRAM_TRAIN, 1, true, bytes,
           "C G0 W0 F0 X0 G1 W1 F1 X1 G0 G2 W0 W2 F2 B2 X0 X2 R2 G1 W1 B1 X1 R1 G0 N2 W0 B0 X0 R0 N1 N0 V U0 U1 U2");
}

Test(compile, frozen_groups_are_gathered_but_never_reduced) {
    /* Nothing of block is trained: 5 blocks, 3 a rank. */
    static const int64_t bytes[] = {10 * 1024, 3 * 1024, 1024};
    case_policy policy = {.world_size = 2, .stage = 1, .gradient_slots = 3};
    expect(CASE_FROZEN_BLOCK, policy, SHD_PROGRAM_TRAIN, 1, true, bytes,
           "C F0 F1 F2 B2 R2 B1 N2 B0 R0 N0 V U0 G0 U2 G2 W0 W2");
    expect(CASE_FROZEN_BLOCK, policy, SHD_PROGRAM_PROLOGUE, 1, true, bytes, "G0 G1 G2 W0 W1 W2");
    policy.shared = true;
    expect(CASE_FROZEN_BLOCK, policy, SHD_PROGRAM_TRAIN, 1, true, bytes,
           "C G0 W0 F0 G1 W1 F1 G2 W2 F2 B2 R2 B1 N2 B0 R0 N0 V U0 U2");
}

Test(compile, only_the_moved_groups_count_as_bytes) {
    /* embed: wte 4369 trainable, 18 blocks; wpe 544 frozen, 3 blocks. Two ranks: 9 and 2. */
    static const struct {
        int32_t stage;
        bool shared;
        shd_program_kind kind;
        int64_t bytes;
    } cases[] = {
        {1, false, SHD_PROGRAM_TRAIN, 9 * 1024},         {1, false, SHD_PROGRAM_PROLOGUE, (9 + 2) * 1024},
        {1, true, SHD_PROGRAM_TRAIN, (9 + 2) * 1024},    {3, false, SHD_PROGRAM_TRAIN, (9 + 2) * 1024},
        {3, true, SHD_PROGRAM_EVALUATE, (9 + 2) * 1024},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        case_policy policy = {.world_size = 2, .stage = cases[c].stage, .gradient_slots = 3, .shared = cases[c].shared};
        case_programs made = case_compile(CASE_FROZEN, policy, cases[c].kind, 1, true);
        const shd_program *program = made.programs[0];
        int32_t found = 0;
        for (int32_t i = 0; i < program->instruction_count; i++)
            if (program->instructions[i].op == SHD_OP_GATHER && program->instructions[i].unit_index == 0) {
                cr_assert_eq(program->instructions[i].bytes, cases[c].bytes, "case %zu", c);
                found++;
            }
        cr_assert_gt(found, 0, "case %zu", c);
        case_destroy(&made);
    }
}

static void expect_print(const case_programs *made, const char *lines) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    shd_program_print(made->programs[1], made->plans[1], out);
    fclose(out);
    cr_assert_str_eq(text, lines, "%s", text);
    free(text);
}

/* The program of docs/PROGRAM.md. */
Test(compile, prints_one_line_an_instruction) {
    static const char *const lines = //
        "    0 reduce  COUNT\n"
        "    1 gather  GATHER embed, micro-step 0, 10240 bytes; awaits UPDATED embed of earlier runs\n"
        "    2 gather  GATHER block, micro-step 0, 3072 bytes; awaits UPDATED block of earlier runs\n"
        "    3 compute WAIT embed, micro-step 0; waits 1\n"
        "    4 compute FORWARD embed, micro-step 0\n"
        "    5 compute RELEASE embed, micro-step 0\n"
        "    6 gather  GATHER head, micro-step 0, 9216 bytes; waits 5; awaits UPDATED head of earlier runs\n"
        "    7 compute WAIT block, micro-step 0; waits 2\n"
        "    8 compute FORWARD block, micro-step 0\n"
        "    9 compute RELEASE block, micro-step 0\n"
        "   10 compute WAIT head, micro-step 0; waits 6\n"
        "   11 compute FORWARD head, micro-step 0\n"
        "   12 gather  GATHER block, micro-step 0, 3072 bytes; waits 9\n"
        "   13 compute BACKWARD head, micro-step 0; waits 0; signals PUBLISHED head\n"
        "   14 compute RELEASE head, micro-step 0\n"
        "   15 reduce  REDUCE head, micro-step 0, 9216 bytes; awaits PUBLISHED head 1; signals CONSUMED head\n"
        "   16 gather  GATHER embed, micro-step 0, 10240 bytes; waits 14\n"
        "   17 compute WAIT block, micro-step 0; waits 12\n"
        "   18 compute BACKWARD block, micro-step 0; signals PUBLISHED block\n"
        "   19 compute RELEASE block, micro-step 0\n"
        "   20 reduce  REDUCE block, micro-step 0, 3072 bytes; awaits PUBLISHED block 1; signals CONSUMED block\n"
        "   21 compute NORM head; waits 15\n"
        "   22 compute WAIT embed, micro-step 0; waits 16\n"
        "   23 compute BACKWARD embed, micro-step 0; signals PUBLISHED embed\n"
        "   24 compute RELEASE embed, micro-step 0\n"
        "   25 reduce  REDUCE embed, micro-step 0, 10240 bytes; awaits PUBLISHED embed 1; signals CONSUMED embed\n"
        "   26 compute NORM block; waits 20\n"
        "   27 compute NORM embed; waits 25\n"
        "   28 compute VERDICT\n"
        "   29 compute UPDATE embed; signals UPDATED embed\n"
        "   30 compute UPDATE block; signals UPDATED block\n"
        "   31 compute UPDATE head; signals UPDATED head\n";
    case_programs made =
        case_compile(CASE_UNTIED, (case_policy){.world_size = 2, .stage = 3, .gradient_slots = 3, .prefetch = 1},
                     SHD_PROGRAM_TRAIN, 1, true);
    expect_print(&made, lines);
    case_destroy(&made);
}

/* The program of docs/PROGRAM.md, "With replicas". */
Test(compile, sums_over_replicas_follow_the_last_reduce_of_each_unit) {
    static const char *const lines = //
        "    0 reduce  COUNT\n"
        "    1 gather  GATHER embed, micro-step 0, 10240 bytes\n"
        "    2 gather  GATHER block, micro-step 0, 3072 bytes\n"
        "    3 compute WAIT embed, micro-step 0; waits 1\n"
        "    4 compute FORWARD embed, micro-step 0\n"
        "    5 compute RELEASE embed, micro-step 0\n"
        "    6 gather  GATHER head, micro-step 0, 9216 bytes\n"
        "    7 compute WAIT block, micro-step 0; waits 2\n"
        "    8 compute FORWARD block, micro-step 0\n"
        "    9 compute RELEASE block, micro-step 0\n"
        "   10 compute WAIT head, micro-step 0; waits 6\n"
        "   11 compute FORWARD head, micro-step 0\n"
        "   12 gather  GATHER block, micro-step 0, 3072 bytes\n"
        "   13 compute BACKWARD head, micro-step 0; waits 0; signals PUBLISHED head\n"
        "   14 compute RELEASE head, micro-step 0\n"
        "   15 reduce  REDUCE head, micro-step 0, 9216 bytes; awaits PUBLISHED head 1; signals CONSUMED head, REDUCED "
        "head\n"
        "   16 gather  GATHER embed, micro-step 0, 10240 bytes\n"
        "   17 compute WAIT block, micro-step 0; waits 12\n"
        "   18 compute BACKWARD block, micro-step 0; signals PUBLISHED block\n"
        "   19 compute RELEASE block, micro-step 0\n"
        "   20 reduce  REDUCE block, micro-step 0, 3072 bytes; awaits PUBLISHED block 1; signals CONSUMED block, "
        "REDUCED block\n"
        "   21 reduce  REDUCE_REPLICAS head, 5120 bytes; awaits REDUCED head 1; signals SUMMED head\n"
        "   22 compute WAIT embed, micro-step 0; waits 16\n"
        "   23 compute BACKWARD embed, micro-step 0; signals PUBLISHED embed\n"
        "   24 compute RELEASE embed, micro-step 0\n"
        "   25 reduce  REDUCE embed, micro-step 0, 10240 bytes; awaits PUBLISHED embed 1; signals CONSUMED embed, "
        "REDUCED embed\n"
        "   26 reduce  GATHER_GRADIENT head, 5120 bytes; awaits SUMMED head 1\n"
        "   27 reduce  REDUCE_REPLICAS block, 2048 bytes; signals SUMMED block\n"
        "   28 reduce  GATHER_GRADIENT block, 2048 bytes; awaits SUMMED block 1\n"
        "   29 reduce  REDUCE_REPLICAS embed, 5120 bytes; signals SUMMED embed\n"
        "   30 reduce  GATHER_GRADIENT embed, 5120 bytes; awaits SUMMED embed 1\n"
        "   31 compute NORM head; waits 21\n"
        "   32 compute UPDATE head; waits 26; signals UPDATED head\n"
        "   33 compute NORM block; waits 27\n"
        "   34 compute UPDATE block; waits 28; signals UPDATED block\n"
        "   35 compute NORM embed; waits 29\n"
        "   36 compute UPDATE embed; waits 30; signals UPDATED embed\n"
        "   37 compute VERDICT\n";
    case_programs made = case_compile(
        CASE_UNTIED,
        (case_policy){.world_size = 4, .replicas = 2, .stage = 3, .gradient_slots = 3, .prefetch = 1, .shared = true},
        SHD_PROGRAM_TRAIN, 1, false);
    expect_print(&made, lines);
    case_destroy(&made);
}

Test(compile, prints_what_is_awaited_of_earlier_runs) {
    case_programs made = case_compile(CASE_UNTIED, (case_policy){.world_size = 2, .stage = 3, .gradient_slots = 3},
                                      SHD_PROGRAM_EVALUATE, 1, true);
    expect_print(&made,
                 "    0 gather  GATHER embed, micro-step 0, 10240 bytes; awaits UPDATED embed of earlier runs\n"
                 "    1 compute WAIT embed, micro-step 0; waits 0\n"
                 "    2 compute FORWARD embed, micro-step 0\n"
                 "    3 compute RELEASE embed, micro-step 0\n"
                 "    4 gather  GATHER block, micro-step 0, 3072 bytes; waits 3; awaits UPDATED block of earlier runs\n"
                 "    5 compute WAIT block, micro-step 0; waits 4\n"
                 "    6 compute FORWARD block, micro-step 0\n"
                 "    7 compute RELEASE block, micro-step 0\n"
                 "    8 gather  GATHER head, micro-step 0, 9216 bytes; waits 7; awaits UPDATED head of earlier runs\n"
                 "    9 compute WAIT head, micro-step 0; waits 8\n"
                 "   10 compute FORWARD head, micro-step 0\n"
                 "   11 compute RELEASE head, micro-step 0\n"
                 "   12 compute VERDICT\n");
    case_destroy(&made);
}

Test(compile, the_hash_is_that_of_all_ranks_and_of_no_other_program) {
    uint64_t seen[4096];
    int count = 0;
    for (case_policy policy = {0}; case_next_policy(&policy);)
        for (int32_t micro_steps = 1; micro_steps <= 2; micro_steps++)
            for (int clip = 0; clip <= 1; clip++) {
                case_programs made = case_compile(CASE_DEEP, policy, SHD_PROGRAM_TRAIN, micro_steps, clip);
                uint64_t hash = shd_program_hash(made.programs[0]);
                for (int32_t r = 1; r < made.rank_count; r++) cr_assert_eq(shd_program_hash(made.programs[r]), hash);
                /* Gather modes and stages may have the same list; then their plans differ. */
                hash ^= shd_plan_hash(made.plans[0]);
                for (int i = 0; i < count; i++) cr_assert_neq(seen[i], hash);
                seen[count++] = hash;
                case_destroy(&made);
            }
    cr_assert_gt(count, 100);
}

Test(compile, every_field_reaches_the_hash) {
    case_programs made = case_compile(CASE_UNTIED, (case_policy){.world_size = 2, .stage = 3, .gradient_slots = 3},
                                      SHD_PROGRAM_TRAIN, 2, true);
    shd_program *program = made.programs[0];
    uint64_t hash = shd_program_hash(program);
#define CHANGES(place)                                                                                                 \
    do {                                                                                                               \
        (place)++;                                                                                                     \
        cr_assert_neq(shd_program_hash(program), hash, #place);                                                        \
        (place)--;                                                                                                     \
    } while (0)
    int32_t last = program->instruction_count - 1;
    CHANGES(program->micro_steps);
    CHANGES(program->instructions[last].op);
    CHANGES(program->instructions[last].queue);
    CHANGES(program->instructions[last].unit_index);
    CHANGES(program->instructions[last].micro_step);
    CHANGES(program->instructions[last].residency);
    CHANGES(program->instructions[last].bytes);
    CHANGES(program->instructions[last].signals.count);
    CHANGES(program->waits[0]);
    CHANGES(program->awaits[0].target);
    CHANGES(program->awaits[0].unit_index);
    CHANGES(program->awaits[0].counter);
    CHANGES(program->signals[0].unit_index);
    program->late_updates = false;
    cr_assert_neq(shd_program_hash(program), hash);
    program->late_updates = true;
    cr_assert_eq(shd_program_hash(program), hash);
    case_destroy(&made);
}

Test(compile, counts_what_a_run_raises) {
    case_programs made = case_compile(
        CASE_FROZEN_BLOCK, (case_policy){.world_size = 2, .stage = 3, .gradient_slots = 3}, SHD_PROGRAM_TRAIN, 3, true);
    static const int32_t raised[SHD_COUNTERS][3] = {
        [SHD_COUNTER_UPDATED] = {1, 0, 1}, [SHD_COUNTER_PUBLISHED] = {3, 0, 3}, [SHD_COUNTER_CONSUMED] = {3, 0, 3}};
    cr_assert_arr_eq(made.programs[1]->raised, raised, sizeof raised);
    case_destroy(&made);
}

Test(compile, refuses_programs_that_make_no_sense) {
    case_programs made =
        case_compile(CASE_UNTIED, (case_policy){.world_size = 1, .gradient_slots = 1}, SHD_PROGRAM_TRAIN, 1, true);
    shd_program *out = NULL;
    cr_assert_eq(shd_program_compile(made.plans[0], SHD_PROGRAM_TRAIN, 0, true, &out), SHERD_ARGUMENT);
    cr_assert_eq(shd_program_compile(made.plans[0], SHD_PROGRAM_EVALUATE, -1, true, &out), SHERD_ARGUMENT);
    cr_assert_eq(shd_program_compile(made.plans[0], SHD_PROGRAM_KINDS, 1, true, &out), SHERD_ARGUMENT);
    cr_assert_null(out);
    case_destroy(&made);
    shd_program_destroy(NULL);
}

Test(compile, leaves_nothing_behind) {
    int64_t held = shd_memory_held(SHD_MEMORY_OBJECTS);
    case_programs made = case_compile(CASE_DEEP, (case_policy){.world_size = 4, .stage = 3, .gradient_slots = 3},
                                      SHD_PROGRAM_TRAIN, 4, false);
    cr_assert_gt(shd_memory_held(SHD_MEMORY_OBJECTS), held);
    cr_assert_eq(case_verify(&made, NULL), SHERD_OK);
    case_destroy(&made);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), held);
}
