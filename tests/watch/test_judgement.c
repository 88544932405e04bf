/* What dumps say together, of ranks that are made up. */
#include "runtime/watch/judgement.h"
#include "tests/watch/made_dumps.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const int32_t worlds[] = {1, 2, 3, 4, 8};
enum { WORLDS = sizeof worlds / sizeof *worlds };

static made_dumps made;

static shd_judgement judge(void) {
    shd_judgement found;
    shd_judgement_make(&made.dumps, &found);
    cr_assert(*found.text && strlen(found.text) < sizeof found.text - 1);
    return found;
}

static void expect(shd_judgement_kind kind, int32_t rank, const char *text) {
    shd_judgement found = judge();
    cr_assert_eq(found.kind, kind, "%s: %s", shd_judgement_text(found.kind), found.text);
    cr_assert_eq(found.rank, rank, "rank %d: %s", found.rank, found.text);
    cr_assert(strstr(found.text, text), "'%s' is not in: %s", text, found.text);
}

Test(judgement, ranks_that_do_the_same_are_consistent) {
    for (int w = 0; w < WORLDS; w++) {
        dumps_make(&made, worlds[w]);
        expect(SHD_JUDGED_CONSISTENT, -1, "agree");
        /* Also when all wait at the same place, as in a deadlock of something else. */
        for (int32_t r = 0; r < worlds[w]; r++) dumps_wait(&made, r, "waiting in EXCHANGE of step 6");
        expect(SHD_JUDGED_CONSISTENT, -1, "agree");
    }
}

Test(judgement, the_rank_with_another_collective_is_named_with_both_sides) {
    for (int w = 1; w < WORLDS; w++)
        for (int32_t culprit = 0; culprit < worlds[w]; culprit++)
            for (int way = 0; way < 3; way++) {
                dumps_make(&made, worlds[w]);
                shd_dump_event *event = dumps_collective(&made, culprit, 6);
                if (way == 0) snprintf(event->kind, sizeof event->kind, "GATHER");
                if (way == 1) snprintf(event->unit, sizeof event->unit, "h.9");
                if (way == 2) event->bytes = 64;
                /* A later difference is a consequence. */
                dumps_collective(&made, 0, 8)->bytes = 1;
                char side[64];
                snprintf(side, sizeof side, "rank %d issued %s %s (%d bytes) where", culprit,
                         way == 0 ? "GATHER" : "REDUCE", way == 1 ? "h.9" : "h.0", way == 2 ? 64 : 4096);
                if (worlds[w] == 2) {
                    /* Nobody has the majority. */
                    shd_judgement found = judge();
                    cr_assert(found.kind == SHD_JUDGED_MISMATCH && found.collective == 6, "%s", found.text);
                    continue;
                }
                expect(SHD_JUDGED_MISMATCH, culprit, side);
                expect(SHD_JUDGED_MISMATCH, culprit, "issued REDUCE h.0 (4096 bytes)");
                cr_assert(judge().collective == 6 && judge().step == 3);
            }
}

Test(judgement, only_what_both_dumps_hold_is_compared) {
    dumps_make(&made, 2);
    made.ranks[1].events += 10; /* its ring reaches back to collective 4 */
    made.ranks[1].event_count -= 10;
    dumps_collective(&made, 0, 3)->bytes = 1;
    expect(SHD_JUDGED_CONSISTENT, -1, "");
    dumps_collective(&made, 0, 4)->bytes = 1;
    expect(SHD_JUDGED_MISMATCH, 1, "In collective 4, ");
}

Test(judgement, a_dead_rank_is_named_but_not_when_the_job_was_over) {
    for (int w = 1; w < WORLDS; w++)
        for (int32_t culprit = 0; culprit < worlds[w]; culprit++) {
            dumps_make(&made, worlds[w]);
            for (int32_t r = 0; r < worlds[w]; r++) dumps_wait(&made, r, "waiting in EXCHANGE of step 6");
            dumps_work(&made, culprit, "dead", "in BACKWARD h.0 of step 6");
            made.ranks[culprit].written_by = (culprit + 1) % worlds[w];
            expect(SHD_JUDGED_DEAD, culprit, "is dead: it ended in BACKWARD h.0 of step 6");
            /* The launcher writes when all are dead. */
            made.ranks[culprit].written_by = -1;
            expect(SHD_JUDGED_MISSING, culprit, "did not arrive: in BACKWARD h.0 of step 6");
        }
}

Test(judgement, a_rank_that_others_wait_for_is_missing_whatever_it_does) {
    static const struct {
        const char *life, *text;
    } cases[] = {{"stopped", "it is stopped, by SIGSTOP, Ctrl-Z or a debugger, reading data for step 6, since 1 s"},
                 {"disk", "it hangs in the kernel"},
                 {"sleeps", "it sleeps in a system call"},
                 {"runs", "it computes"},
                 {"unknown", "did not arrive: reading data"}};
    for (int w = 1; w < WORLDS; w++)
        for (int32_t culprit = 0; culprit < worlds[w]; culprit++)
            for (int i = 0; i < 5; i++) {
                dumps_make(&made, worlds[w]);
                for (int32_t r = 0; r < worlds[w]; r++) dumps_wait(&made, r, "waiting in REDUCE h.0 of step 6");
                dumps_work(&made, culprit, cases[i].life, "reading data for step 6");
                made.ranks[culprit].written_by = (culprit + 1) % worlds[w];
                expect(SHD_JUDGED_MISSING, culprit, cases[i].text);
                expect(SHD_JUDGED_MISSING, culprit, "is waiting in REDUCE h.0 of step 6 since 1 s");
            }
}

Test(judgement, a_rank_that_is_stopped_is_more_to_blame_than_one_that_computes) {
    dumps_make(&made, 4);
    dumps_wait(&made, 0, "waiting in EXCHANGE of step 6");
    dumps_work(&made, 1, "runs", "in BACKWARD h.0 of step 6");
    dumps_work(&made, 2, "stopped", "waiting in FORWARD h.0 of step 6");
    made.ranks[2].written_by = 0;
    dumps_work(&made, 3, "runs", "in BACKWARD h.0 of step 6");
    expect(SHD_JUDGED_MISSING, 2, "it is stopped");
    /* Also when by its own records it waits. */
    snprintf(made.ranks[2].where_kind, sizeof made.ranks[2].where_kind, "wait");
    expect(SHD_JUDGED_MISSING, 2, "it is stopped");
}

Test(judgement, a_rank_without_a_dump_is_missing) {
    dumps_make(&made, 4);
    for (int32_t r = 0; r < 4; r++) dumps_wait(&made, r, "meeting the other ranks");
    made.ranks[3] = (shd_rank_dump){.rank = 3};
    made.dumps.there = 3;
    expect(SHD_JUDGED_MISSING, 3, "Rank 3 left no dump");
}

Test(judgement, where_all_wait_the_one_that_has_come_least_far_is_missing) {
    for (int32_t culprit = 0; culprit < 3; culprit++) {
        dumps_make(&made, 3);
        for (int32_t r = 0; r < 3; r++) dumps_wait(&made, r, "waiting in EXCHANGE of step 6");
        made.ranks[culprit].event_count -= DUMPS_STEP_EVENTS;
        expect(SHD_JUDGED_MISSING, culprit, "behind all others: its last collective was number 7");
    }
}

/* As `sherd debug --of` finds a job that runs: all have waited, or worked, for so long. */
static void visit(double since_s) {
    for (int32_t r = 0; r < made.dumps.world_size; r++) {
        made.ranks[r].written_by = -2;
        made.ranks[r].since_ns = made.ranks[r].now_ns - (int64_t)(since_s * 1e9);
    }
}

Test(judgement, in_a_job_that_runs_an_instant_of_waiting_is_no_missing_rank) {
    for (int w = 1; w < WORLDS; w++) {
        dumps_make(&made, worlds[w]);
        for (int32_t r = 0; r < worlds[w]; r++) dumps_wait(&made, r, "waiting in REDUCE h.0 of step 6");
        dumps_work(&made, 1, "runs", "in BACKWARD h.0 of step 6");
        visit(0.03);
        expect(SHD_JUDGED_CONSISTENT, -1, "agree");
        visit(9.9);
        expect(SHD_JUDGED_CONSISTENT, -1, "agree");
        visit(10.1);
        expect(SHD_JUDGED_MISSING, 1, "it computes, slowly or without an end");
        /* Of 20 s a step, instead of 68 ms. */
        for (int64_t i = 0; i < made.ranks[0].event_count; i++) made.ranks[0].events[i].queued_ns *= 294;
        visit(30);
        expect(SHD_JUDGED_CONSISTENT, -1, "agree");
        visit(41);
        expect(SHD_JUDGED_MISSING, 1, "it computes, slowly or without an end");
        /* Whoever is stopped does not go on by itself. */
        dumps_work(&made, 1, "stopped", "in BACKWARD h.0 of step 6");
        visit(0.03);
        expect(SHD_JUDGED_MISSING, 1, "it is stopped");
    }
}

Test(judgement, in_a_job_that_runs_an_instant_in_the_kernel_is_no_missing_rank) {
    for (int w = 0; w < WORLDS; w++)
        for (int reads = 0; reads < 2; reads++) {
            int32_t last = worlds[w] - 1;
            dumps_make(&made, worlds[w]);
            for (int32_t r = 0; r < worlds[w]; r++) dumps_wait(&made, r, "waiting in REDUCE h.0 of step 6");
            dumps_work(&made, last, "disk", "reading data for step 6");
            if (!reads) dumps_wait(&made, last, "waiting in REDUCE h.0 of step 6");
            snprintf(made.ranks[last].life, sizeof made.ranks[last].life, "disk");
            visit(0.03);
            expect(SHD_JUDGED_CONSISTENT, -1, "agree");
            visit(9.9);
            expect(SHD_JUDGED_CONSISTENT, -1, "agree");
            visit(10.1);
            expect(SHD_JUDGED_MISSING, last, "it hangs in the kernel");
        }
}

Test(judgement, in_a_job_that_runs_a_slow_rank_is_found_while_the_others_wait_for_it) {
    for (int32_t culprit = 0; culprit < 3; culprit++) {
        dumps_make(&made, 3);
        for (int64_t i = 0; i < made.ranks[culprit].event_count; i++) {
            shd_dump_event *event = &made.ranks[culprit].events[i];
            if (!strcmp(event->kind, "BACKWARD")) event->ended_ns += 80000000;
        }
        for (int32_t r = 0; r < 3; r++) dumps_wait(&made, r, "waiting in REDUCE h.0 of step 6");
        dumps_work(&made, culprit, "runs", "in BACKWARD h.0 of step 6");
        visit(0.1);
        expect(SHD_JUDGED_STRAGGLER, culprit, "is slow");
    }
}

Test(judgement, a_rank_whose_own_work_takes_longer_is_a_straggler) {
    for (int w = 1; w < WORLDS; w++)
        for (int32_t culprit = 0; culprit < worlds[w]; culprit++)
            for (int factor = 1; factor <= 3; factor++) {
                dumps_make(&made, worlds[w]);
                for (int64_t i = 0; i < made.ranks[culprit].event_count; i++) {
                    shd_dump_event *event = &made.ranks[culprit].events[i];
                    if (!strcmp(event->kind, "BACKWARD")) event->ended_ns += (factor - 1) * 40000000;
                }
                /* 61 ms of its own a step, then 101 and 141; waiting does not count */
                if (factor == 1) {
                    expect(SHD_JUDGED_CONSISTENT, -1, "");
                    continue;
                }
                expect(SHD_JUDGED_STRAGGLER, culprit, "is slow");
                cr_assert_float_eq(judge().slower, factor == 2 ? 101.0 / 61 : 141.0 / 61, 1e-9);
                dumps_make(&made, worlds[w]);
                for (int64_t i = 0; i < made.ranks[culprit].event_count; i++)
                    if (!strcmp(made.ranks[culprit].events[i].kind, "EXCHANGE"))
                        made.ranks[culprit].events[i].ended_ns += 400000000;
                expect(SHD_JUDGED_CONSISTENT, -1, "");
            }
}

Test(judgement, what_explains_the_rest_is_said_first) {
    dumps_make(&made, 4);
    dumps_wait(&made, 0, "waiting in EXCHANGE of step 6");
    dumps_work(&made, 1, "stopped", "in FORWARD h.0 of step 6");
    made.ranks[1].written_by = 0;
    expect(SHD_JUDGED_MISSING, 1, "");
    dumps_work(&made, 2, "dead", "in FORWARD h.0 of step 6");
    made.ranks[2].written_by = 0;
    expect(SHD_JUDGED_DEAD, 2, "");
    dumps_collective(&made, 3, 2)->bytes = 1;
    expect(SHD_JUDGED_MISMATCH, 3, "");
}
