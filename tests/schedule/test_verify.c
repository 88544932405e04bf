/* The verifier over the whole matrix: silent about every compiled program, though none of their waits and awaits may
 * go; and the peak it finds. */
#include "tests/schedule/cases.h"

#include "shard/plan.h"

#include <criterion/criterion.h>

/* Instrumented builds take a part of the large matrices. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { MOST_RANKS = 3, MOST_MICRO_STEPS = 2 };
#else
enum { MOST_RANKS = 8, MOST_MICRO_STEPS = 3 };
#endif

#define FOR_EACH_CASE(policy, model, kind, micro_steps, clip)                                                          \
    for (case_policy policy = {0}; case_next_policy(&policy);)                                                         \
        for (case_model model = policy.world_size > MOST_RANKS ? CASE_MODELS : 0; model < CASE_MODELS; model++)        \
            for (shd_program_kind kind = 0; kind < SHD_PROGRAM_KINDS; kind++)                                          \
                for (int32_t micro_steps = 1; micro_steps <= MOST_MICRO_STEPS; micro_steps++)                          \
                    for (int clip = 0; clip <= !case_is_owned(model); clip++)

static const char *describe(case_model model, case_policy policy, shd_program_kind kind, int32_t micro_steps,
                            int clip) {
    static char text[200];
    snprintf(text, sizeof text,
             "%s, %d ranks, %d replicas, stage %d, %s, prefetch %d, kind %d, %d micro-steps, clip %d",
             case_model_name(model), policy.world_size, policy.replicas, policy.stage,
             policy.shared ? "shared" : "copy", policy.prefetch, (int)kind, micro_steps, clip);
    return text;
}

/* --- no false alarm --------------------------------------------------------------------------- */

Test(verify, accepts_every_compiled_program) {
    int count = 0;
    FOR_EACH_CASE(policy, model, kind, micro_steps, clip) {
        case_programs made = case_compile(model, policy, kind, micro_steps, clip);
        cr_assert_eq(case_verify(&made, NULL), SHERD_OK, "%s: %s", describe(model, policy, kind, micro_steps, clip),
                     sherd_last_error());
        case_destroy(&made);
        count++;
    }
    cr_assert_gt(count, 1000);
}

Test(verify, accepts_any_number_of_gradient_slots) {
    for (int32_t slots = 1; slots <= 6; slots++)
        for (int32_t ranks = 1; ranks <= 4; ranks++) {
            case_policy policy = {.world_size = ranks, .stage = 3, .gradient_slots = slots, .prefetch = 2};
            case_programs made = case_compile(CASE_DEEP, policy, SHD_PROGRAM_TRAIN, 2, false);
            cr_assert_eq(case_verify(&made, NULL), SHERD_OK, "%d slots: %s", slots, sherd_last_error());
            case_destroy(&made);
        }
}

/* --- every wait and await is needed ----------------------------------------------------------- */

/* Moves entry `i` of a run behind its end, and back again. */
#define TAKE_OUT(table, run, i)                                                                                        \
    do {                                                                                                               \
        __typeof__(*(table)) taken = (table)[(run).first + (i)];                                                       \
        (table)[(run).first + (i)] = (table)[(run).first + (run).count - 1];                                           \
        (table)[(run).first + --(run).count] = taken;                                                                  \
    } while (0)
#define PUT_BACK(table, run, i)                                                                                        \
    do {                                                                                                               \
        __typeof__(*(table)) taken = (table)[(run).first + (run).count];                                               \
        (table)[(run).first + (run).count++] = (table)[(run).first + (i)];                                             \
        (table)[(run).first + (i)] = taken;                                                                            \
    } while (0)

static bool found_without(case_programs *made, int32_t index, bool wait, int32_t i) {
    for (int32_t r = 0; r < made->rank_count; r++) {
        shd_program *program = made->programs[r];
        if (wait)
            TAKE_OUT(program->waits, program->instructions[index].waits, i);
        else
            TAKE_OUT(program->awaits, program->instructions[index].awaits, i);
    }
    bool found = case_verify(made, NULL) == SHERD_INTERNAL;
    for (int32_t r = 0; r < made->rank_count; r++) {
        shd_program *program = made->programs[r];
        if (wait)
            PUT_BACK(program->waits, program->instructions[index].waits, i);
        else
            PUT_BACK(program->awaits, program->instructions[index].awaits, i);
    }
    return found;
}

Test(verify, misses_every_wait_and_await_that_is_taken_away) {
    int count = 0;
    FOR_EACH_CASE(policy, model, kind, micro_steps, clip) {
        if ((policy.world_size > 4 || case_is_owned(model)) && micro_steps > 1) continue;
        if (policy.world_size > 4 && case_is_owned(model) && policy.prefetch > 0) continue;
        case_programs made = case_compile(model, policy, kind, micro_steps, clip);
        for (int32_t i = 0; i < made.programs[0]->instruction_count; i++) {
            const shd_instruction *instruction = &made.programs[0]->instructions[i];
            int32_t waits = instruction->waits.count, awaits = instruction->awaits.count;
            for (int32_t e = 0; e < waits + awaits; e++, count++)
                cr_assert(found_without(&made, i, e < waits, e < waits ? e : e - waits),
                          "%s: nothing misses %s %d of instruction %d (%s)",
                          describe(model, policy, kind, micro_steps, clip), e < waits ? "wait" : "await", e, i,
                          shd_op_text(instruction->op));
        }
        cr_assert_eq(case_verify(&made, NULL), SHERD_OK);
        case_destroy(&made);
    }
    cr_assert_gt(count, 1000);
}

/* --- peak ------------------------------------------------------------------------------------- */

/* What rank 0's steps of whole tensors take at the most: each from DIRECT on, as far as it updates it itself to UPDATE. */
static int64_t count_steps(const shd_plan *plan, const shd_program *program) {
    int64_t now = 0, most = 0;
    for (int32_t i = 0; i < program->instruction_count; i++) {
        const shd_instruction *instruction = &program->instructions[i];
        if (instruction->op != SHD_OP_DIRECT && instruction->op != SHD_OP_UPDATE) continue;
        const shd_unit_plan *unit = &plan->units[instruction->unit_index];
        int64_t shard = plan->groups[unit->trainable_group].shard_count, all = 0, own = 0;
        for (int32_t t = unit->first_tensor; t < unit->first_tensor + unit->tensor_count; t++) {
            const shd_tensor_place *place = &plan->places[t];
            if (place->owner != 0) continue;
            int64_t end = place->offset_count + place->element_count;
            all += 4 * place->element_count;
            if (plan->policy.stage == 0) shard = end;
            if (place->offset_count < shard) own += 4 * ((end < shard ? end : shard) - place->offset_count);
        }
        if (instruction->op == SHD_OP_DIRECT && now + all > most) most = now + all;
        now += instruction->op == SHD_OP_DIRECT ? own : -own;
    }
    return most;
}

/* From the residencies alone: the fullest event. A gradient is rounded when its event's releases are done, and stands
 * twice then. */
static int64_t count_peak(const shd_plan *plan, const shd_program *program) {
    shd_program_kind kind = program->kind;
    int64_t always = 0, most = 0;
    for (int32_t b = 0; b < plan->buffer_count; b++)
        if (!plan->buffers[b].transient) always += plan->buffers[b].charged_bytes;
    int32_t events = kind == SHD_PROGRAM_TRAIN      ? 2 * plan->unit_count
                     : kind == SHD_PROGRAM_EVALUATE ? plan->unit_count
                                                    : 0;
    for (int32_t event = 0; event < events; event++) {
        int64_t now = 0, released = 0;
        for (int32_t i = 0; i < plan->gather_count; i++) {
            const shd_residency *gather = &plan->gathers[i];
            if (gather->slot_buffer >= 0 && gather->issue_event <= event && event <= gather->last_event &&
                gather->first_event < events) {
                now += plan->units[gather->unit_index].gathered_bytes;
                if (gather->last_event == event) released += plan->units[gather->unit_index].gathered_bytes;
            }
        }
        for (int32_t i = 0; kind == SHD_PROGRAM_TRAIN && i < plan->gradient_count; i++)
            if (plan->gradients[i].first_event <= event && event <= plan->gradients[i].last_event)
                now += plan->units[plan->gradients[i].unit_index].gradient_bytes;
        if (now > most) most = now;
        for (int32_t i = 0; kind == SHD_PROGRAM_TRAIN && plan->rounded && i < plan->gradient_count; i++)
            if (plan->gradients[i].last_event == event)
                now += plan->units[plan->gradients[i].unit_index].gradient_bytes / 2 - released;
        if (now > most) most = now;
    }
    int64_t steps = count_steps(plan, program);
    return always + (steps > most ? steps : most);
}

Test(verify, the_peak_is_that_of_the_fullest_event) {
    FOR_EACH_CASE(policy, model, kind, micro_steps, clip) {
        case_programs made = case_compile(model, policy, kind, micro_steps, clip);
        int64_t peak = -1;
        cr_assert_eq(case_verify(&made, &peak), SHERD_OK);
        cr_assert_eq(peak, count_peak(made.plans[0], made.programs[0]), "%s",
                     describe(model, policy, kind, micro_steps, clip));
        cr_assert_leq(peak, made.plans[0]->allocated_bytes);
        case_destroy(&made);
    }
}
