/* DIRECT: where it stands, and what the verifier says when it stands wrong. Models: see cases.h. */
#include "tests/schedule/cases.h"

#include "shard/plan.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* What follows VERDICT on the COMPUTE queue, as "D1 U0 …": DIRECT, UPDATE and the unit. */
static void spell_updates(const shd_program *program, char *text) {
    bool after = false;
    *text = 0;
    for (int32_t i = 0; i < program->instruction_count; i++) {
        const shd_instruction *instruction = &program->instructions[i];
        bool direct = instruction->op == SHD_OP_DIRECT;
        if (after && (direct || instruction->op == SHD_OP_UPDATE))
            text += sprintf(text, "%c%d ", direct ? 'D' : 'U', instruction->unit_index);
        after |= instruction->op == SHD_OP_VERDICT;
    }
}

static void expect(case_model model, case_policy policy, const char *list) {
    char text[400];
    policy.replicas = 1;
    case_programs made = case_compile(model, policy, SHD_PROGRAM_TRAIN, 2, false);
    for (int32_t r = 0; r < made.rank_count; r++) {
        spell_updates(made.programs[r], text);
        cr_expect_str_eq(text, list, "stage %d, %d ranks: \"%s\", not \"%s\"", policy.stage, policy.world_size, text,
                         list);
    }
    case_destroy(&made);
}

/* Units: embed 0, blocks 1 to 4, head 5. Three slots: the blocks take turns, and the fourth must wait for the first. The
 * embedding and the head need no owner. One rank has one slot for all blocks. */
Test(direct, owners_work_on_as_many_units_as_have_slots) {
    for (int32_t stage = 1; stage <= 3; stage++)
        for (int32_t ranks = 2; ranks <= 4; ranks++)
            expect(CASE_MUON, (case_policy){.world_size = ranks, .stage = stage, .gradient_slots = 3},
                   "D1 D2 D3 U0 U1 U2 U3 D4 U4 U5 ");
    expect(CASE_MUON, (case_policy){.world_size = 2, .stage = 0, .gradient_slots = 3},
           "D4 D3 D2 U5 U4 U3 U2 D1 U1 U0 ");
    expect(CASE_MUON, (case_policy){.world_size = 1, .stage = 3, .gradient_slots = 1},
           "D1 U0 U1 D2 U2 D3 U3 D4 U4 U5 ");
}

/* --- what is read ------------------------------------------------------------------------------------------------- */

/* Bytes that an instruction says it reads of buffers of a kind. */
static int64_t bytes_read(const shd_plan *plan, const shd_program *program, const shd_instruction *instruction,
                          shd_buffer_kind kind) {
    int64_t bytes = 0;
    for (int32_t i = 0; i < instruction->accesses.count; i++) {
        const shd_access *access = &program->accesses[instruction->accesses.first + i];
        bool whose = access->scope == SHD_SCOPE_OWN || access->peer > 0;
        if (access->mode == SHD_ACCESS_READ && plan->buffers[access->buffer_index].kind == kind && whose)
            bytes += access->byte_count;
    }
    return bytes;
}

/* Elements of a unit's whole tensors that a rank owns, or, as they are spread over shards, has in its own. */
static int64_t count_elements(const shd_plan *plan, int32_t unit, bool owned) {
    int64_t count = 0, begin, part;
    const shd_group *group = &plan->groups[plan->units[unit].trainable_group];
    int32_t rank = shd_policy_place(&plan->policy);
    int64_t first = plan->policy.stage > 0 ? rank * group->shard_count : 0;
    int64_t held = plan->policy.stage > 0 ? group->shard_count : group->padded_count;
    for (int32_t t = 0; t < plan->tensor_count; t++) {
        if (plan->places[t].unit_index != unit || !plan->places[t].whole) continue;
        if (owned)
            count += plan->places[t].owner == rank ? plan->places[t].element_count : 0;
        else
            count += shd_plan_intersect(plan, t, first, held, &begin, &part) ? part : 0;
    }
    return count;
}

static void check_reads(const shd_plan *plan, const shd_program *program) {
    const shd_policy *policy = &plan->policy;
    bool copies = policy->stage == 3 && !policy->gather_shared && shd_policy_split(policy) > 1;
    shd_buffer_kind parameters = policy->parameter_dtype != SHERD_FP32 ? SHD_BUFFER_MASTER
                                 : copies                              ? SHD_BUFFER_SHARD
                                                                       : SHD_BUFFER_PARAMETERS;
    for (int32_t i = 0; i < program->instruction_count; i++) {
        const shd_instruction *instruction = &program->instructions[i];
        if (instruction->op != SHD_OP_DIRECT && instruction->op != SHD_OP_UPDATE) continue;
        bool direct = instruction->op == SHD_OP_DIRECT;
        int64_t bytes = 4 * count_elements(plan, instruction->unit_index, direct);
        cr_expect_eq(bytes_read(plan, program, instruction, direct ? SHD_BUFFER_ACCUMULATOR : SHD_BUFFER_GRADIENT_SLOT),
                     bytes, "rank %d, stage %d, instruction %d", policy->rank, policy->stage, i);
        if (direct)
            cr_expect_eq(bytes_read(plan, program, instruction, parameters), policy->owners_read_parameters ? bytes : 0,
                         "rank %d, stage %d, instruction %d", policy->rank, policy->stage, i);
    }
}

/* The verifier knows only what instructions say of themselves: they say that owners read all of their tensors, and
 * everyone the steps of all that lies in its shard. */
Test(direct, all_that_is_read_of_whole_tensors_is_said) {
    case_policy policy = {0};
    while (case_next_policy(&policy))
        for (int model = 0; model < CASE_MODELS; model++) {
            if (!case_is_owned((case_model)model) || policy.prefetch > 0) continue;
            case_programs made = case_compile((case_model)model, policy, SHD_PROGRAM_TRAIN, 1, false);
            for (int32_t r = 0; r < made.rank_count; r++) check_reads(made.plans[r], made.programs[r]);
            case_destroy(&made);
        }
}

/* --- damage ------------------------------------------------------------------------------------------------------- */

static int32_t find(const shd_program *program, shd_op op, int32_t unit) {
    for (int32_t i = 0; i < program->instruction_count; i++)
        if (program->instructions[i].op == op && program->instructions[i].unit_index == unit) return i;
    cr_assert_fail("no %s of unit %d", shd_op_text(op), unit);
    return -1;
}

static shd_instruction *at(shd_program *program, shd_op op, int32_t unit) {
    return &program->instructions[find(program, op, unit)];
}

static void swap(shd_program *program, int32_t a, int32_t b) {
    shd_instruction held = program->instructions[a];
    program->instructions[a] = program->instructions[b];
    program->instructions[b] = held;
}

static void unheard_owner(shd_program *p) { at(p, SHD_OP_UPDATE, 4)->awaits.count = 0; }
static void taken_slot(shd_program *p) { at(p, SHD_OP_DIRECT, 4)->awaits.count = 0; }
static void early(shd_program *p) { swap(p, find(p, SHD_OP_VERDICT, -1), find(p, SHD_OP_DIRECT, 0)); }
static void silent(shd_program *p) { at(p, SHD_OP_DIRECT, 4)->signals.count = 0; }
/* The step of the first tensor of h.0 is looked for with another rank, or one that there is not. */
static void read_peer(shd_program *p, int32_t peer) {
    shd_run *accesses = &at(p, SHD_OP_UPDATE, 1)->accesses;
    for (int32_t i = 0; i < accesses->count; i++) {
        shd_access *access = &p->accesses[accesses->first + i];
        if (access->mode != SHD_ACCESS_READ || access->peer == 0) continue;
        access->peer = peer ? peer : 1 + access->peer % 2;
        return;
    }
}
static void wrong_peer(shd_program *p) { read_peer(p, 0); }
static void no_peer(shd_program *p) { read_peer(p, 3); }

Test(direct, damage_is_named) {
    static const struct {
        const char *name;
        case_model model;
        int32_t ranks;
        void (*damage)(shd_program *program);
        const char *parts[3];
    } cases[] = {
        {"an UPDATE does not wait for the owner",
         CASE_ADAFACTOR,
         2,
         unheard_owner,
         {"(UPDATE h.3)", "gradient_slot", "nothing orders the two"}},
        {"a DIRECT does not wait until its slot is free",
         CASE_ADAFACTOR,
         4,
         taken_slot,
         {"(DIRECT h.3)", "gradient_slot", "nothing orders the two"}},
        {"a DIRECT comes before VERDICT", CASE_ADAFACTOR, 2, early, {"(DIRECT embed)", "the verdict", "reads"}},
        {"an owner does not say that it is done", CASE_ADAFACTOR, 2, silent, {"raises DIRECTED h.3 0 times", "", ""}},
        {"a step is taken from another rank", CASE_MUON, 2, wrong_peer, {"(UPDATE h.0)", "gradient_slot", ""}},
        {"a step is taken from no rank", CASE_MUON, 2, no_peer, {"(UPDATE h.0)", "of peer 2; there are 2", ""}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const case_policy policy = {.world_size = cases[c].ranks, .replicas = 1, .stage = 3, .gradient_slots = 3};
        case_programs made = case_compile(cases[c].model, policy, SHD_PROGRAM_TRAIN, 1, true);
        cr_assert_eq(case_verify(&made, NULL), SHERD_OK);
        for (int32_t r = 0; r < made.rank_count; r++) cases[c].damage(made.programs[r]);
        cr_expect_eq(case_verify(&made, NULL), SHERD_INTERNAL, "%s is not noticed", cases[c].name);
        for (int p = 0; p < 3; p++)
            cr_expect_not_null(strstr(sherd_last_error(), cases[c].parts[p]), "%s: \"%s\" lacks \"%s\"", cases[c].name,
                               sherd_last_error(), cases[c].parts[p]);
        case_destroy(&made);
    }
}
