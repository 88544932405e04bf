/* What the verifier says of damaged programs and plans: that something is wrong, and what, by name. */
#include "tests/schedule/cases.h"

#include "shard/plan.h"

#include <criterion/criterion.h>
#include <string.h>

/* --- programs --------------------------------------------------------------------------------- */

/* The n-th instruction of this kind, from 0. */
static int32_t find(const shd_program *program, shd_op op, int32_t unit, int32_t n) {
    for (int32_t i = 0; i < program->instruction_count; i++)
        if (program->instructions[i].op == op && program->instructions[i].unit_index == unit && n-- == 0) return i;
    cr_assert_fail("no %s of unit %d", shd_op_text(op), unit);
    return -1;
}

static shd_instruction *at(shd_program *program, shd_op op, int32_t unit, int32_t n) {
    return &program->instructions[find(program, op, unit, n)];
}

/* Takes instruction `from` out and puts it in so that it has index `to`; waits follow the instructions they name. */
static void move(shd_program *program, int32_t from, int32_t to) {
    shd_instruction moved = program->instructions[from];
    int32_t step = from < to ? 1 : -1;
    for (int32_t i = from; i != to; i += step) program->instructions[i] = program->instructions[i + step];
    program->instructions[to] = moved;
    for (int32_t w = 0; w < program->wait_count; w++) {
        int32_t *wait = &program->waits[w];
        if (*wait == from)
            *wait = to;
        else if (from<to && * wait> from && *wait <= to)
            --*wait;
        else if (to < from && *wait >= to && *wait < from)
            ++*wait;
    }
}

/* Nothing may wait for it. */
static void take_out(shd_program *program, int32_t index) {
    move(program, index, program->instruction_count - 1);
    program->instruction_count--;
}

/* The damages. `p`: one rank's program; those that damage one rank alone are given rank 1's. */
static void wait_of_wait(shd_program *p) { at(p, SHD_OP_WAIT, 1, 0)->waits.count = 0; }
static void wait_of_gather(shd_program *p) { at(p, SHD_OP_GATHER, 1, 0)->waits.count = 0; }
static void await_of_gather(shd_program *p) { at(p, SHD_OP_GATHER, 0, 0)->awaits.count = 0; }
static void await_of_reduce(shd_program *p) { at(p, SHD_OP_REDUCE, 2, 0)->awaits.count = 0; }
static void await_of_backward(shd_program *p) { at(p, SHD_OP_BACKWARD, 2, 1)->awaits.count = 0; }
static void await_of_gather_gradient(shd_program *p) { at(p, SHD_OP_GATHER_GRADIENT, 1, 0)->awaits.count = 0; }
static void await_of_replicas(shd_program *p) { at(p, SHD_OP_REDUCE_REPLICAS, 2, 0)->awaits.count = 0; }
static void await_of_parts(shd_program *p) { at(p, SHD_OP_GATHER_GRADIENT, 2, 0)->awaits.count = 0; }
static void early_parts(shd_program *p) {
    move(p, find(p, SHD_OP_GATHER_GRADIENT, 2, 0), find(p, SHD_OP_REDUCE_REPLICAS, 2, 0));
}
static void no_replicas(shd_program *p) { at(p, SHD_OP_REDUCE_REPLICAS, 1, 0)->op = SHD_OP_REDUCE; }
static void foreign_part(shd_program *p) {
    /* Replica 0's part is added up once more. */
    shd_run accesses = at(p, SHD_OP_REDUCE_REPLICAS, 0, 0)->accesses;
    for (int32_t i = 0; i < accesses.count; i++) p->accesses[accesses.first + i].first_byte = 0;
}
static void wait_of_update(shd_program *p) { at(p, SHD_OP_UPDATE, 2, 0)->waits.count = 0; }
static void wait_of_norm(shd_program *p) { at(p, SHD_OP_NORM, 0, 0)->waits.count = 0; }
static void wait_of_backward(shd_program *p) { at(p, SHD_OP_BACKWARD, 2, 0)->waits.count = 0; }
static void early_release(shd_program *p) { move(p, find(p, SHD_OP_RELEASE, 1, 0), find(p, SHD_OP_FORWARD, 1, 0)); }
static void no_final_wait(shd_program *p) { take_out(p, find(p, SHD_OP_WAIT, 2, 0)); }
static void no_wait(shd_program *p) { take_out(p, find(p, SHD_OP_WAIT, 0, 0)); }
static void no_recompute(shd_program *p) { take_out(p, find(p, SHD_OP_RECOMPUTE, 1, 0)); }
static void early_recompute(shd_program *p) {
    move(p, find(p, SHD_OP_RECOMPUTE, 0, 0), find(p, SHD_OP_RECOMPUTE, 1, 0));
}
static void no_gather(shd_program *p) {
    at(p, SHD_OP_WAIT, 2, 0)->waits.count = 0;
    take_out(p, find(p, SHD_OP_GATHER, 2, 0));
}
static void swapped_gathers(shd_program *p) { move(p, find(p, SHD_OP_GATHER, 1, 0), find(p, SHD_OP_GATHER, 0, 0)); }
static void swapped_reduces(shd_program *p) { move(p, find(p, SHD_OP_REDUCE, 2, 0), find(p, SHD_OP_REDUCE, 1, 0)); }
static void other_bytes(shd_program *p) { at(p, SHD_OP_REDUCE, 0, 0)->bytes += 64; }
static void other_queue(shd_program *p) { at(p, SHD_OP_REDUCE, 0, 0)->queue = SHD_QUEUE_GATHER; }
static void no_count(shd_program *p) {
    at(p, SHD_OP_BACKWARD, 2, 0)->waits.count = 0;
    take_out(p, find(p, SHD_OP_COUNT, -1, 0));
}
static void no_signal(shd_program *p) { at(p, SHD_OP_BACKWARD, 2, 0)->signals.count = 0; }
static void no_signal_expected(shd_program *p) {
    no_signal(p);
    p->raised[SHD_COUNTER_PUBLISHED * 3 + 2]--;
}
static void early_reduce(shd_program *p) { move(p, find(p, SHD_OP_REDUCE, 1, 0), find(p, SHD_OP_BACKWARD, 1, 0)); }
static void forward_wait(shd_program *p) { p->waits[at(p, SHD_OP_NORM, 0, 0)->waits.first] = p->instruction_count - 1; }
static void far_target(shd_program *p) { p->awaits[at(p, SHD_OP_REDUCE, 2, 0)->awaits.first].target = 2; }
static void near_target(shd_program *p) { p->awaits[at(p, SHD_OP_REDUCE, 2, 1)->awaits.first].target = 1; }
static void early_update(shd_program *p) { move(p, find(p, SHD_OP_UPDATE, 0, 0), find(p, SHD_OP_VERDICT, -1, 0)); }
static void late_norm(shd_program *p) { move(p, find(p, SHD_OP_NORM, 0, 0), find(p, SHD_OP_VERDICT, -1, 0)); }
static void update_before_norm(shd_program *p) { move(p, find(p, SHD_OP_UPDATE, 1, 0), find(p, SHD_OP_NORM, 1, 0)); }
static void adding_reduce(shd_program *p) { at(p, SHD_OP_REDUCE, 1, 0)->first_reduce = false; }
static void setting_reduce(shd_program *p) { at(p, SHD_OP_REDUCE, 1, 1)->first_reduce = true; }
static void far_access(shd_program *p) { p->accesses[at(p, SHD_OP_FORWARD, 2, 0)->accesses.first].first_byte += 64; }
static void stale_accumulator(shd_program *p) {
    /* The REDUCE that should set the accumulator reads it, as the later ones do. */
    shd_run *first = &at(p, SHD_OP_REDUCE, 1, 0)->accesses;
    *first = at(p, SHD_OP_REDUCE, 1, 1)->accesses;
}
static void no_backward_write(shd_program *p) { at(p, SHD_OP_BACKWARD, 1, 0)->accesses.count = 0; }
static void no_release(shd_program *p) {
    at(p, SHD_OP_GATHER, 1, 0)->waits.count = 0;
    take_out(p, find(p, SHD_OP_RELEASE, 0, 0));
}
static void foreign_gradient(shd_program *p) {
    shd_run accesses = at(p, SHD_OP_UPDATE, 1, 0)->accesses;
    for (int32_t i = 0; i < accesses.count; i++) p->accesses[accesses.first + i].scope = SHD_SCOPE_GROUP;
}

enum {
    STAGE_3_COPY,
    STAGE_3_SHARED,
    STAGE_3_AHEAD,
    STAGE_2_COPY,
    STAGE_2_SHARED,
    STAGE_0,
    RECOMPUTED,
    PART,
    REPLICAS,
    POLICIES
};
static const case_policy policies[POLICIES] = {
    [STAGE_3_COPY] = {.world_size = 3, .stage = 3, .gradient_slots = 3},
    [STAGE_3_SHARED] = {.world_size = 3, .stage = 3, .gradient_slots = 3, .shared = true},
    [STAGE_3_AHEAD] = {.world_size = 3, .stage = 3, .gradient_slots = 3, .prefetch = 1},
    [STAGE_2_COPY] = {.world_size = 3, .stage = 2, .gradient_slots = 3},
    [STAGE_2_SHARED] = {.world_size = 3, .stage = 2, .gradient_slots = 3, .shared = true},
    [STAGE_0] = {.world_size = 3, .stage = 0, .gradient_slots = 3},
    [REPLICAS] = {.world_size = 4, .replicas = 2, .stage = 2, .gradient_slots = 3},
    [RECOMPUTED] = {.world_size = 3, .stage = 0, .gradient_slots = 3, .recompute = SHERD_RECOMPUTE_UNIT},
    [PART] = {.world_size = 3, .stage = 0, .gradient_slots = 3, .recompute = SHERD_RECOMPUTE_PART},
};

enum { EVERYWHERE = -1 };
static const struct {
    const char *name;
    void (*damage)(shd_program *program);
    int policy, micro_steps;
    bool clip;
    int32_t rank;         /* which one is damaged, or EVERYWHERE */
    const char *parts[4]; /* of the message */
} damages[] = {
    {"WAIT does not wait for its GATHER",
     wait_of_wait,
     STAGE_3_COPY,
     1,
     true,
     EVERYWHERE,
     {"(WAIT block, micro-step 0) of rank ", "reads gather_slot", "(GATHER block", "nothing orders the two"}},
    {"the same, where gathers are shared",
     wait_of_wait,
     STAGE_3_SHARED,
     1,
     true,
     EVERYWHERE,
     {"(WAIT block", "reads parameters of block (trainable)", "(GATHER block", "acquires: nothing orders"}},
    {"GATHER does not wait until its slot is released",
     wait_of_gather,
     STAGE_3_COPY,
     1,
     true,
     EVERYWHERE,
     {"(GATHER block", "writes gather_slot 0", "(RELEASE embed", "nothing orders the two"}},
    {"GATHER does not await the owners' updates",
     await_of_gather,
     STAGE_3_COPY,
     1,
     true,
     EVERYWHERE,
     {"(GATHER embed", "rank ", "'s shard of embed (trainable)", "(UPDATE embed"}},
    {"the same, where gathers are shared",
     await_of_gather,
     STAGE_3_SHARED,
     1,
     true,
     EVERYWHERE,
     {"(GATHER embed", "acquires parameters of embed (trainable)", "(UPDATE embed", "nothing orders"}},
    {"the same after UPDATE",
     await_of_gather,
     STAGE_2_COPY,
     1,
     true,
     EVERYWHERE,
     {"(GATHER embed)", "parameters of embed (trainable)", "(UPDATE embed)", "nothing orders"}},
    {"REDUCE does not await the gradients",
     await_of_reduce,
     STAGE_2_COPY,
     1,
     true,
     EVERYWHERE,
     {"(REDUCE head, micro-step 0)", "'s gradient_slot 0", "which nothing before it has written"}},
    {"REDUCE awaits the gradients of an earlier micro-step",
     near_target,
     STAGE_2_COPY,
     2,
     true,
     EVERYWHERE,
     {"(REDUCE head, micro-step 1)", "gradient_slot", "(BACKWARD head, micro-step 1)", "nothing orders"}},
    {"BACKWARD does not await that its slot is consumed",
     await_of_backward,
     STAGE_2_COPY,
     2,
     true,
     EVERYWHERE,
     {"(BACKWARD head, micro-step 1)", "writes gradient_slot 0", "(REDUCE head, micro-step 0)", "reads: nothing"}},
    {"GATHER_GRADIENT does not await the sums",
     await_of_gather_gradient,
     STAGE_0,
     1,
     true,
     EVERYWHERE,
     {"(GATHER_GRADIENT block)", "'s accumulator of block (trainable)", "which nothing before it has written"}},
    {"REDUCE_REPLICAS does not await the replicas' sums",
     await_of_replicas,
     REPLICAS,
     1,
     true,
     EVERYWHERE,
     {"(REDUCE_REPLICAS head)", "'s accumulator of head (trainable)", "(REDUCE head, micro-step 0)", "nothing orders"}},
    {"GATHER_GRADIENT does not await the replicas' parts",
     await_of_parts,
     REPLICAS,
     1,
     true,
     EVERYWHERE,
     {"(GATHER_GRADIENT head)", "accumulator of head (trainable)", "(REDUCE_REPLICAS head)", "nothing orders"}},
    {"GATHER_GRADIENT comes before REDUCE_REPLICAS",
     early_parts,
     REPLICAS,
     1,
     true,
     EVERYWHERE,
     {"(GATHER_GRADIENT head) of rank 0 blocks for ever", "awaits SUMMED head to reach 1"}},
    {"a replica does not take part in the sum",
     no_replicas,
     REPLICAS,
     1,
     true,
     2,
     {"collective", "(REDUCE_REPLICAS block) of rank 0", "(REDUCE block) of rank 2"}},
    {"NORM does not wait for the sum over replicas",
     wait_of_norm,
     REPLICAS,
     1,
     true,
     EVERYWHERE,
     {"(NORM embed)", "accumulator of embed (trainable)", "(REDUCE_REPLICAS embed)", "nothing orders"}},
    {"two replicas add up the same part",
     foreign_part,
     REPLICAS,
     1,
     true,
     2,
     {"accumulator of embed (trainable)", "(REDUCE_REPLICAS embed)", "nothing orders"}},
    {"UPDATE does not wait for the whole gradient",
     wait_of_update,
     STAGE_0,
     1,
     false,
     EVERYWHERE,
     {"(UPDATE head)", "accumulator of head (trainable)", "(GATHER_GRADIENT head)", "nothing orders"}},
    {"NORM does not wait for the sum",
     wait_of_norm,
     STAGE_2_SHARED,
     1,
     true,
     EVERYWHERE,
     {"(NORM embed)", "accumulator of embed (trainable)", "(REDUCE embed", "nothing orders"}},
    {"BACKWARD does not wait for COUNT",
     wait_of_backward,
     STAGE_2_SHARED,
     1,
     true,
     EVERYWHERE,
     {"(BACKWARD head, micro-step 0)", "reads the target count", "(COUNT)", "nothing orders"}},
    {"RELEASE comes before the last reader",
     early_release,
     STAGE_3_COPY,
     1,
     true,
     EVERYWHERE,
     {"(FORWARD block, micro-step 0)", "reads gather_slot", "nothing before it has written since", "(RELEASE block"}},
    {"the same, where gathers are shared",
     early_release,
     STAGE_3_SHARED,
     1,
     true,
     EVERYWHERE,
     {"(FORWARD block, micro-step 0)", "reads parameters of block", "nothing before it has acquired since",
      "(RELEASE block"}},
    {"RELEASE is missing",
     no_release,
     STAGE_3_COPY,
     1,
     true,
     EVERYWHERE,
     {"(GATHER block", "writes gather_slot 0", "(FORWARD embed", "reads: nothing orders"}},
    {"the last WAIT is missing",
     no_final_wait,
     STAGE_2_COPY,
     1,
     true,
     EVERYWHERE,
     {"(GATHER head) of rank", "no instruction waits for it", "when the program ends"}},
    {"a WAIT is missing",
     no_wait,
     STAGE_3_AHEAD,
     1,
     true,
     EVERYWHERE,
     {"(FORWARD embed, micro-step 0)", "reads gather_slot", "(GATHER embed", "nothing orders"}},
    {"RECOMPUTE is missing",
     no_recompute,
     RECOMPUTED,
     2,
     true,
     EVERYWHERE,
     {"(BACKWARD block, micro-step 0)", "reads recomputed", "nothing before it has written since"}},
    {"RECOMPUTE comes while the activations of another unit are needed",
     early_recompute,
     RECOMPUTED,
     1,
     true,
     EVERYWHERE,
     {"(BACKWARD embed, micro-step 0)", "reads recomputed", "nothing before it has written since"}},
    {"RECOMPUTE of a part is missing",
     no_recompute,
     PART,
     2,
     true,
     EVERYWHERE,
     {"(BACKWARD block, micro-step 0)", "reads recomputed", "nothing before it has written since"}},
    {"RECOMPUTE of a part comes while another unit's is needed",
     early_recompute,
     PART,
     1,
     true,
     EVERYWHERE,
     {"(BACKWARD embed, micro-step 0)", "reads recomputed", "nothing before it has written since"}},
    {"GATHER is missing",
     no_gather,
     STAGE_2_SHARED,
     1,
     true,
     EVERYWHERE,
     {"(WAIT head, micro-step 0)", "reads parameters of head (trainable)", "which nothing before it has acquired"}},
    {"GATHER is missing on one rank",
     no_gather,
     STAGE_2_SHARED,
     1,
     true,
     1,
     {"collective", "(GATHER head, micro-step 0) of rank 0", "(REDUCE head, micro-step 0) of rank 1", "bytes"}},
    {"two GATHERs are swapped on one rank",
     swapped_gathers,
     STAGE_3_AHEAD,
     1,
     true,
     1,
     {"collective 1 differs", "(GATHER embed, micro-step 0) of rank 0", "(GATHER block, micro-step 0) of rank 1"}},
    {"two REDUCEs are swapped on one rank",
     swapped_reduces,
     STAGE_2_COPY,
     1,
     true,
     2,
     {"collective", "(REDUCE head, micro-step 0) of rank 0", "(REDUCE block, micro-step 0) of rank 2"}},
    {"a collective has other bytes on one rank",
     other_bytes,
     STAGE_2_COPY,
     1,
     true,
     1,
     {"collective", "(REDUCE embed, micro-step 0) of rank 0", "14336 bytes", "14400 bytes"}},
    {"a collective is in another queue on one rank",
     other_queue,
     STAGE_2_COPY,
     1,
     true,
     1,
     {"collective", "(REDUCE embed", "in the reduce queue", "in the gather queue"}},
    {"COUNT is missing on one rank",
     no_count,
     STAGE_2_COPY,
     1,
     true,
     1,
     {"collective 0", "(COUNT) of rank 0", "(REDUCE head, micro-step 0) of rank 1"}},
    {"COUNT is missing everywhere",
     no_count,
     STAGE_2_COPY,
     1,
     true,
     EVERYWHERE,
     {"(BACKWARD head, micro-step 0)", "reads the target count", "nothing before it has written"}},
    {"a signal is missing on one rank",
     no_signal,
     STAGE_2_COPY,
     1,
     true,
     1,
     {"rank 1 raises PUBLISHED head 0 times", "table says 1"}},
    {"a signal is missing everywhere, and not expected",
     no_signal_expected,
     STAGE_2_COPY,
     1,
     true,
     EVERYWHERE,
     {"(REDUCE head, micro-step 0) of rank 0 blocks for ever", "awaits PUBLISHED head to reach 1"}},
    {"REDUCE comes before BACKWARD",
     early_reduce,
     STAGE_2_COPY,
     1,
     true,
     EVERYWHERE,
     {"(REDUCE block, micro-step 0) of rank 0 blocks for ever", "awaits PUBLISHED block to reach 1"}},
    {"REDUCE comes before BACKWARD on one rank",
     early_reduce,
     STAGE_2_COPY,
     1,
     true,
     1,
     {"(REDUCE block, micro-step 0) of rank", "blocks for ever", "awaits PUBLISHED block to reach 1", "rank 1"}},
    {"a wait names a later instruction",
     forward_wait,
     STAGE_2_COPY,
     1,
     true,
     1,
     {"(NORM embed) of rank 1", "waits for instruction", "not before it"}},
    {"an await wants more than is raised",
     far_target,
     STAGE_2_COPY,
     1,
     true,
     EVERYWHERE,
     {"(REDUCE head, micro-step 0)", "blocks for ever", "PUBLISHED head to reach 2"}},
    {"UPDATE does not know the clip scale",
     early_update,
     STAGE_2_COPY,
     1,
     true,
     EVERYWHERE,
     {"(UPDATE embed) of rank", "reads the verdict", "nothing before it has written"}},
    {"VERDICT misses a norm",
     late_norm,
     STAGE_2_COPY,
     1,
     true,
     EVERYWHERE,
     {"(VERDICT) of rank", "reads the norm of embed", "nothing before it has written"}},
    {"UPDATE comes before NORM",
     update_before_norm,
     STAGE_3_COPY,
     1,
     false,
     EVERYWHERE,
     {"(UPDATE block) of rank", "reads accumulator of block (trainable)", "(REDUCE block", "nothing orders"}},
    {"the first REDUCE adds",
     adding_reduce,
     STAGE_2_COPY,
     2,
     true,
     EVERYWHERE,
     {"(REDUCE block, micro-step 0) of rank 0", "adds to an accumulator that no REDUCE before it has set"}},
    {"a later REDUCE sets",
     setting_reduce,
     STAGE_2_COPY,
     2,
     true,
     1,
     {"(REDUCE block, micro-step 1) of rank 1", "sets an accumulator anew"}},
    {"REDUCE adds to what the last step left",
     stale_accumulator,
     STAGE_2_COPY,
     2,
     true,
     EVERYWHERE,
     {"(REDUCE block, micro-step 0) of rank 0", "reads accumulator of block (trainable)",
      "nothing before it has written"}},
    {"BACKWARD writes no gradient",
     no_backward_write,
     STAGE_2_COPY,
     1,
     true,
     EVERYWHERE,
     {"(REDUCE block, micro-step 0)", "reads gradient_slot", "which nothing before it has written"}},
    {"an access leaves its buffer",
     far_access,
     STAGE_2_COPY,
     1,
     true,
     1,
     {"(FORWARD head, micro-step 0) of rank 1", "touches bytes 64 to", "parameters of head", "which has"}},
    {"private memory of other ranks is touched",
     foreign_gradient,
     STAGE_2_COPY,
     1,
     true,
     1,
     {"(UPDATE block) of rank 1", "other ranks' accumulator of block", "not there for others"}},
};

static void expect_message(const char *name, sherd_status status, const char *const parts[4]) {
    cr_assert_eq(status, SHERD_INTERNAL, "%s: nothing is found", name);
    for (int i = 0; i < 4 && parts[i]; i++)
        cr_assert_not_null(strstr(sherd_last_error(), parts[i]), "%s: \"%s\" is not in \"%s\"", name, parts[i],
                           sherd_last_error());
}

Test(damage, names_what_is_wrong_with_a_program) {
    for (size_t d = 0; d < sizeof damages / sizeof *damages; d++) {
        case_programs made = case_compile(CASE_UNTIED, policies[damages[d].policy], SHD_PROGRAM_TRAIN,
                                          damages[d].micro_steps, damages[d].clip);
        cr_assert_eq(case_verify(&made, NULL), SHERD_OK);
        for (int32_t r = 0; r < made.rank_count; r++)
            if (damages[d].rank == EVERYWHERE || damages[d].rank == r) damages[d].damage(made.programs[r]);
        expect_message(damages[d].name, case_verify(&made, NULL), damages[d].parts);
        case_destroy(&made);
    }
}

Test(damage, an_evaluation_must_await_the_updates_of_the_last_step) {
    static const char *const parts[4] = {"(GATHER embed, micro-step 0)", "shard of embed (trainable)",
                                         "the last step's UPDATE embed of rank", "nothing orders"};
    case_programs made = case_compile(CASE_UNTIED, policies[STAGE_3_COPY], SHD_PROGRAM_EVALUATE, 1, false);
    cr_assert_eq(case_verify(&made, NULL), SHERD_OK);
    for (int32_t r = 0; r < made.rank_count; r++) await_of_gather(made.programs[r]);
    expect_message("evaluation", case_verify(&made, NULL), parts);
    case_destroy(&made);
}

Test(damage, a_prologue_must_gather_before_anything_is_read) {
    static const char *const parts[4] = {"(WAIT head) of rank 0", "parameters of head (trainable)",
                                         "which nothing before it has written"};
    case_programs made = case_compile(CASE_UNTIED, policies[STAGE_2_COPY], SHD_PROGRAM_PROLOGUE, 1, false);
    for (int32_t r = 0; r < made.rank_count; r++) no_gather(made.programs[r]);
    expect_message("prologue", case_verify(&made, NULL), parts);
    case_destroy(&made);
}

/* --- plans ------------------------------------------------------------------------------------ */

static void overlapping(shd_plan *plan) {
    shd_buffer *first = &plan->buffers[plan->groups[0].accumulator_buffer];
    plan->buffers[plan->groups[1].accumulator_buffer].offset_bytes = first->offset_bytes + first->bytes - 64;
}
static void outside(shd_plan *plan) {
    plan->buffers[plan->groups[1].accumulator_buffer].offset_bytes = plan->arena_bytes[SHD_PLACE_PRIVATE];
}
static void elsewhere(shd_plan *plan) {
    for (int32_t b = 0; b < plan->buffer_count; b++)
        if (plan->buffers[b].place == SHD_PLACE_EXPORTED) plan->buffers[b].offset_bytes += 64;
    plan->arena_bytes[SHD_PLACE_EXPORTED] += 64;
}
static void too_dear(shd_plan *plan) { plan->buffers[0].charged_bytes += plan->allocated_bytes; }
static void other_rank(shd_plan *plan) { plan->policy.rank = 0; }

Test(damage, names_what_is_wrong_with_a_plan) {
    static const struct {
        const char *name;
        void (*damage)(shd_plan *plan);
        const char *parts[4];
    } cases[] = {
        {"buffers overlap",
         overlapping,
         {"accumulator of embed (trainable)", "accumulator of block (trainable)", "rank 1 overlap in their arena"}},
        {"a buffer leaves its arena", outside, {"accumulator of block (trainable) of rank 1", "does not fit"}},
        {"exported buffers lie elsewhere on one rank", elsewhere, {"shard of embed", "lies elsewhere on rank 1"}},
        {"buffers cost more than planned", too_dear, {"the buffers of rank 1 take", "its plan says"}},
        {"a plan is for another rank", other_rank, {"plan 1 of 3 is for rank 0"}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        case_programs made = case_compile(CASE_UNTIED, policies[STAGE_3_COPY], SHD_PROGRAM_TRAIN, 1, true);
        cases[c].damage(made.plans[1]);
        expect_message(cases[c].name, case_verify(&made, NULL), cases[c].parts);
        case_destroy(&made);
    }
}

Test(damage, refuses_programs_that_are_not_of_one_job) {
    static const char *const parts[4] = {"program of rank 1 is of another kind"};
    case_programs made = case_compile(CASE_UNTIED, policies[STAGE_0], SHD_PROGRAM_TRAIN, 1, true);
    shd_program_destroy(made.programs[1]);
    cr_assert_eq(shd_program_compile(made.plans[1], SHD_PROGRAM_TRAIN, 2, true, &made.programs[1]), SHERD_OK);
    expect_message("micro-steps", case_verify(&made, NULL), parts);
    case_destroy(&made);
}
