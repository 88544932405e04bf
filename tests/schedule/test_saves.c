/* Saving in programs: where SAVE and COMMIT stand, what they read, and that nothing overwrites what is still being
 * saved. */
#include "tests/schedule/cases.h"

#include "runtime/base/arith.h"
#include "shard/plan.h"

#include <criterion/criterion.h>
#include <string.h>

/* Instrumented builds take a part of the large matrices. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { MOST_RANKS = 3 };
#else
enum { MOST_RANKS = 8 };
#endif

/* --- lists -------------------------------------------------------------------------------------------------------- */

/* "S0" for SAVE of unit 0, M for COMMIT, and of the others only what changes what is saved: D for DIRECT, U for UPDATE;
 * behind each the SAVEs it waits for, by unit: "U0(0)". */
static void spell(const shd_program *program, char *text) {
    for (int32_t i = 0; i < program->instruction_count; i++) {
        const shd_instruction *instruction = &program->instructions[i];
        static const char letters[SHD_OPS] = {
            [SHD_OP_SAVE] = 'S', [SHD_OP_COMMIT] = 'M', [SHD_OP_DIRECT] = 'D', [SHD_OP_UPDATE] = 'U'};
        if (!letters[instruction->op]) continue;
        cr_assert_eq(instruction->queue, instruction->op == SHD_OP_SAVE ? SHD_QUEUE_COPY : SHD_QUEUE_COMPUTE);
        *text++ = letters[instruction->op];
        if (instruction->unit_index >= 0) *text++ = (char)('0' + instruction->unit_index);
        for (int32_t w = 0; w < instruction->waits.count; w++) {
            const shd_instruction *waited = &program->instructions[program->waits[instruction->waits.first + w]];
            if (waited->op == SHD_OP_SAVE) text += sprintf(text, "(%d)", (int)waited->unit_index);
        }
        *text++ = ' ';
    }
    text[-1] = 0;
}

static void expect(case_model model, case_policy policy, shd_program_kind kind, bool clip, const char *list) {
    policy.saves = true;
    if (!policy.gradient_slots) policy.gradient_slots = 3;
    case_programs made = case_compile(model, policy, kind, 2, clip);
    for (int32_t r = 0; r < made.rank_count; r++) {
        char text[400];
        spell(made.programs[r], text);
        cr_assert_str_eq(text, list, "%s, stage %d, clip %d: %s", case_model_name(model), policy.stage, clip, text);
        cr_assert_eq(made.programs[r]->instructions[0].op, SHD_OP_SAVE);
        cr_assert_eq(made.programs[r]->instructions[made.programs[r]->instruction_count - 1].op, SHD_OP_COMMIT);
    }
    case_destroy(&made);
}

Test(saves, come_first_in_the_order_of_updates_each_of_which_waits_for_its_own) {
    case_policy policy = {.world_size = 2, .stage = 0};
    expect(CASE_UNTIED, policy, SHD_PROGRAM_TRAIN, true, "S2 S1 S0 U2(2) U1(1) U0(0) M");
    expect(CASE_UNTIED, policy, SHD_PROGRAM_TRAIN, false, "S2 S1 S0 U2(2) U1(1) U0(0) M");
    for (policy.stage = 1; policy.stage <= 3; policy.stage++) {
        expect(CASE_UNTIED, policy, SHD_PROGRAM_TRAIN, true, "S0 S1 S2 U0(0) U1(1) U2(2) M");
        expect(CASE_UNTIED, policy, SHD_PROGRAM_TRAIN, false, "S2 S1 S0 U2(2) U1(1) U0(0) M");
    }
    /* The head writes the table's gradient first and the embedding last. */
    expect(CASE_TIED, policy = (case_policy){.world_size = 1, .stage = 3}, SHD_PROGRAM_TRAIN, false,
           "S2 S1 S0 U2(2) U1(1) U0(0) M");
}

Test(saves, of_units_that_are_not_trained_are_waited_for_by_commit) {
    const case_policy policy = {.world_size = 2, .stage = 3};
    expect(CASE_FROZEN_BLOCK, policy, SHD_PROGRAM_TRAIN, true, "S0 S2 S1 U0(0) U2(2) M(1)");
    expect(CASE_FROZEN_BLOCK, policy, SHD_PROGRAM_TRAIN, false, "S2 S0 S1 U2(2) U0(0) M(1)");
}

/* Owners of whole tensors change states before any update; units 0 and 5 have no owners. */
Test(saves, are_waited_for_by_owners_too) {
    const case_policy policy = {.world_size = 2, .stage = 3};
    expect(CASE_MUON, policy, SHD_PROGRAM_TRAIN, false,
           "S0 S1 S2 S3 S4 S5 D1(1) D2(2) D3(3) U0 U1 U2 U3 D4(4) U4 U5(5) M");
}

Test(saves, are_a_program_of_their_own_between_steps) {
    const case_policy policy = {.world_size = 2, .stage = 2};
    expect(CASE_UNTIED, policy, SHD_PROGRAM_SAVE, true, "S0 S1 S2 M(2)");
    expect(CASE_UNTIED, policy, SHD_PROGRAM_SAVE, false, "S2 S1 S0 M(0)");
    case_programs made =
        case_compile(CASE_UNTIED, (case_policy){.world_size = 2, .gradient_slots = 3}, SHD_PROGRAM_SAVE, 0, true);
    cr_assert_eq(made.programs[0]->instruction_count, 4, "without saves in steps too");
    case_destroy(&made);
}

Test(saves, add_nothing_else_to_a_step) {
    for (case_policy policy = {0}; case_next_policy(&policy);) {
        if (policy.world_size > 3) continue;
        for (int clip = 0; clip <= 1; clip++) {
            case_policy saving = policy;
            saving.saves = true;
            case_programs without = case_compile(CASE_TIED, policy, SHD_PROGRAM_TRAIN, 2, clip);
            case_programs with = case_compile(CASE_TIED, saving, SHD_PROGRAM_TRAIN, 2, clip);
            const shd_program *a = without.programs[0], *b = with.programs[0];
            int32_t units = without.plans[0]->unit_count;
            cr_assert_eq(b->instruction_count, a->instruction_count + units + 1);
            for (int32_t i = 0; i < a->instruction_count; i++) {
                const shd_instruction *plain = &a->instructions[i], *same = &b->instructions[units + i];
                cr_assert(plain->op == same->op && plain->unit_index == same->unit_index);
                cr_assert_eq(same->waits.count, plain->waits.count + (plain->op == SHD_OP_UPDATE));
                cr_assert_eq(same->awaits.count, plain->awaits.count);
                cr_assert_eq(same->accesses.count, plain->accesses.count);
            }
            case_destroy(&without);
            case_destroy(&with);
        }
    }
}

Test(saves, are_printed_as_all_instructions_are) {
    case_programs made =
        case_compile(CASE_FROZEN_BLOCK, (case_policy){.world_size = 1, .gradient_slots = 1}, SHD_PROGRAM_SAVE, 1, true);
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    shd_program_print(made.programs[0], made.plans[0], out);
    fclose(out);
    cr_assert_str_eq(text, "    0 copy    SAVE head\n"
                           "    1 copy    SAVE embed\n"
                           "    2 copy    SAVE block\n"
                           "    3 compute COMMIT; waits 2\n");
    free(text);
    case_destroy(&made);
}

/* --- what is read ------------------------------------------------------------------------------------------------- */

/* Bytes that all ranks' SAVEs read of buffers of one kind, padding included. */
static int64_t read_bytes(const case_programs *made, shd_buffer_kind kind) {
    int64_t bytes = 0;
    for (int32_t r = 0; r < made->rank_count; r++)
        for (int32_t i = 0; i < made->programs[r]->instruction_count; i++) {
            const shd_instruction *save = &made->programs[r]->instructions[i];
            for (int32_t a = 0; save->op == SHD_OP_SAVE && a < save->accesses.count; a++) {
                const shd_access *access = &made->programs[r]->accesses[save->accesses.first + a];
                if (access->mode != SHD_ACCESS_READ || made->plans[r]->buffers[access->buffer_index].kind != kind)
                    continue;
                cr_assert_eq(access->scope, SHD_SCOPE_OWN);
                bytes += access->byte_count;
            }
        }
    return bytes;
}

/* Every padded element once, of masters where there are some, whatever the layout; replicas but the first nothing. */
Test(saves, read_the_whole_state_once) {
    for (case_policy policy = {0}; case_next_policy(&policy);)
        for (case_model model = 0; model < CASE_MODELS; model++) {
            policy.saves = true;
            case_programs made = case_compile(model, policy, SHD_PROGRAM_TRAIN, 1, true);
            const shd_plan *plan = made.plans[0];
            int64_t parameters = 0, masters = 0, states = 0, owned = 0;
            for (int32_t g = 0; g < plan->group_count; g++) {
                const shd_group *group = &plan->groups[g];
                if (group->master_buffer >= 0)
                    masters += group->padded_count * 4;
                else
                    parameters += group->padded_count * shd_dtype_bytes(plan->policy.parameter_dtype);
                /* Behind the last element with states, ranks have room that nobody needs. */
                int64_t stated = plan->policy.stage == 0 ? group->stated_count
                                                         : shd_min(group->stated_count, group->shard_count) *
                                                               shd_policy_split(&plan->policy);
                if (group->trainable) states += plan->policy.state_count * stated * 4;
            }
            for (int32_t t = 0; t < plan->tensor_count; t++)
                for (int32_t s = 0; s < SHD_MAX_OWNED_STATES; s++) owned += plan->places[t].state_counts[s] * 4;
            cr_assert_eq(read_bytes(&made, SHD_BUFFER_MASTER), masters);
            cr_assert_eq(read_bytes(&made, SHD_BUFFER_PARAMETERS) + read_bytes(&made, SHD_BUFFER_SHARD), parameters);
            cr_assert_eq(read_bytes(&made, SHD_BUFFER_STATE), states, "%s, %d ranks, stage %d: %ld, not %ld",
                         case_model_name(model), policy.world_size, policy.stage,
                         (long)read_bytes(&made, SHD_BUFFER_STATE), (long)states);
            cr_assert_eq(read_bytes(&made, SHD_BUFFER_OWNED_STATE), owned);
            cr_assert_eq(read_bytes(&made, SHD_BUFFER_ACCUMULATOR), 0);
            case_destroy(&made);
        }
}

/* --- what is proved ----------------------------------------------------------------------------------------------- */

/* Takes wait `w` of instruction `index` away on every rank, verifies, and puts it back. */
static bool is_missed(case_programs *made, int32_t index, int32_t w) {
    for (int32_t r = 0; r < made->rank_count; r++) {
        shd_run *waits = &made->programs[r]->instructions[index].waits;
        int32_t *table = &made->programs[r]->waits[waits->first], taken = table[w];
        table[w] = table[waits->count - 1];
        table[--waits->count] = taken;
    }
    bool missed = case_verify(made, NULL) == SHERD_INTERNAL;
    for (int32_t r = 0; r < made->rank_count; r++) {
        shd_run *waits = &made->programs[r]->instructions[index].waits;
        int32_t *table = &made->programs[r]->waits[waits->first], taken = table[waits->count++];
        table[waits->count - 1] = table[w];
        table[w] = taken;
    }
    return missed;
}

Test(saves, are_proved_right_and_each_of_their_waits_is_missed, .timeout = 120) {
    int32_t accepted = 0, taken = 0;
    for (case_policy policy = {0}; case_next_policy(&policy);)
        for (case_model model = policy.world_size > MOST_RANKS ? CASE_MODELS : 0; model < CASE_MODELS; model++)
            for (int clip = 0; clip <= !case_is_owned(model); clip++)
                for (int eight_bits = 0; eight_bits <= (policy.stage == 0 && policy.world_size < 4); eight_bits++) {
                    case_policy saving = policy;
                    saving.saves = true;
                    saving.state_dtype = eight_bits ? SHERD_INT8 : SHERD_FP32;
                    case_programs made = case_compile(model, saving, SHD_PROGRAM_TRAIN, 1, clip);
                    cr_assert_eq(case_verify(&made, NULL), SHERD_OK, "%s, %d ranks, stage %d: %s",
                                 case_model_name(model), policy.world_size, policy.stage, sherd_last_error());
                    accepted++;
                    const shd_program *program = made.programs[0];
                    for (int32_t i = 0; policy.world_size <= 4 && i < program->instruction_count; i++)
                        for (int32_t w = 0; w < program->instructions[i].waits.count; w++) {
                            int32_t waited = program->waits[program->instructions[i].waits.first + w];
                            if (program->instructions[waited].op != SHD_OP_SAVE) continue;
                            taken++;
                            cr_assert(is_missed(&made, i, w), "%s, %d ranks, stage %d: nothing misses that %s %d waits",
                                      case_model_name(model), policy.world_size, policy.stage,
                                      shd_op_text(program->instructions[i].op), program->instructions[i].unit_index);
                        }
                    case_destroy(&made);
                }
    cr_assert(accepted > 300 && taken > 300, "%d, %d", accepted, taken);
}

static int32_t find(const shd_program *program, shd_op op, int32_t unit) {
    int32_t i = 0;
    while (program->instructions[i].op != op || program->instructions[i].unit_index != unit) i++;
    return i;
}

static void no_wait(shd_program *p, shd_op op, int32_t unit) { p->instructions[find(p, op, unit)].waits.count = 0; }
static void early_update(shd_program *p) { no_wait(p, SHD_OP_UPDATE, 1); }
static void early_direct(shd_program *p) { no_wait(p, SHD_OP_DIRECT, 2); }
static void early_commit(shd_program *p) { no_wait(p, SHD_OP_COMMIT, -1); }
static void no_commit(shd_program *p) { p->instruction_count--; }
static void late_save(shd_program *p) {
    shd_instruction *save = &p->instructions[find(p, SHD_OP_SAVE, 1)];
    save->waits = p->instructions[find(p, SHD_OP_UPDATE, 1)].waits;
}
static void foreign_shard(shd_program *p) {
    shd_run accesses = p->instructions[find(p, SHD_OP_SAVE, 0)].accesses;
    p->accesses[accesses.first].first_byte = 0; /* rank 0's part, by all */
}

Test(saves, that_come_too_late_are_named) {
    static const struct {
        void (*damage)(shd_program *program);
        case_model model;
        case_policy policy;
        int32_t rank; /* -1: all */
        const char *parts[3];
    } cases[] = {
        {early_update,
         CASE_UNTIED,
         {.world_size = 2, .stage = 3},
         -1,
         {"(UPDATE block)", "(SAVE block)", "nothing orders"}},
        {early_direct, CASE_MUON, {.world_size = 2, .stage = 2}, -1, {"(DIRECT ", "owned_state", "nothing orders"}},
        {early_commit,
         CASE_FROZEN_BLOCK,
         {.world_size = 2, .stage = 1},
         -1,
         {"(SAVE block)", "no instruction waits for it"}},
        {late_save, CASE_UNTIED, {.world_size = 2, .stage = 3}, 0, {"(SAVE block) of rank 0 waits for something"}},
        {no_commit, CASE_UNTIED, {.world_size = 3, .stage = 0}, 1, {"(COMMIT) of rank 0 has no counterpart on rank 1"}},
        {foreign_shard,
         CASE_UNTIED,
         {.world_size = 2, .stage = 2, .shared = true},
         1,
         {"(SAVE embed) of rank 1", "parameters of embed", "nothing before it has acquired"}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        case_policy policy = cases[c].policy;
        policy.saves = true;
        policy.gradient_slots = 3;
        case_programs made = case_compile(cases[c].model, policy, SHD_PROGRAM_TRAIN, 1, true);
        cr_assert_eq(case_verify(&made, NULL), SHERD_OK);
        for (int32_t r = 0; r < made.rank_count; r++)
            if (cases[c].rank < 0 || cases[c].rank == r) cases[c].damage(made.programs[r]);
        cr_assert_eq(case_verify(&made, NULL), SHERD_INTERNAL, "case %zu", c);
        for (int i = 0; i < 3 && cases[c].parts[i]; i++)
            cr_assert_not_null(strstr(sherd_last_error(), cases[c].parts[i]), "case %zu: %s", c, sherd_last_error());
        case_destroy(&made);
    }
}
