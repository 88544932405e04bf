/* What nodes conclude from messages, without nodes. */
#include "runtime/launch/roll.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static void hello(shd_roll *roll, int32_t attempt, int32_t node, int32_t count) {
    shd_roll_apply(roll, &(shd_message){.kind = SHD_MESSAGE_HELLO, .attempt = attempt, .node = node, .count = count});
}
static void say(shd_roll *roll, shd_message_kind kind, int32_t attempt, int32_t node) {
    shd_roll_apply(roll, &(shd_message){.kind = kind, .attempt = attempt, .node = node, .rank = node + 10});
}

/* All nodes there for attempt 0, with 1, 2, 3, … ranks. */
static void gather(shd_roll *roll, int32_t nodes) {
    cr_assert_eq(shd_roll_init(roll, nodes), SHERD_OK);
    for (int32_t node = nodes; node-- > 0;) hello(roll, 0, node, node + 1);
}

Test(roll, runs_when_all_are_there_and_numbers_ranks_by_node) {
    shd_roll roll;
    cr_assert_eq(shd_roll_init(&roll, 4), SHERD_OK);
    hello(&roll, 0, 3, 4);
    hello(&roll, 0, 1, 2);
    hello(&roll, 0, 1, 2); /* once more is no other node */
    hello(&roll, 1, 0, 1); /* another attempt */
    hello(&roll, 0, 2, 3);
    cr_assert_eq(roll.phase, SHD_ROLL_MEET);
    char missing[64];
    shd_roll_missing(&roll, missing, sizeof missing);
    cr_assert_str_eq(missing, "0");
    hello(&roll, 0, 0, 1);
    cr_assert_eq(roll.phase, SHD_ROLL_RUN);
    static const int32_t firsts[] = {0, 1, 3, 6, 10};
    for (int32_t node = 0; node <= 4; node++) cr_assert_eq(shd_roll_first_rank(&roll, node), firsts[node]);
    shd_roll_fini(&roll);
}

Test(roll, the_first_failure_decides_and_later_ones_change_nothing) {
    shd_roll roll;
    gather(&roll, 3);
    say(&roll, SHD_MESSAGE_DONE, 0, 0);
    say(&roll, SHD_MESSAGE_FAILED, 1, 1); /* of another attempt */
    cr_assert_eq(roll.phase, SHD_ROLL_RUN);
    say(&roll, SHD_MESSAGE_FAILED, 0, 2);
    say(&roll, SHD_MESSAGE_FAILED, 0, 1);
    say(&roll, SHD_MESSAGE_LOST, 0, 1);
    cr_assert(shd_roll_failed(&roll));
    cr_assert_eq(roll.verdict.kind, SHD_MESSAGE_FAILED);
    cr_assert_eq(roll.verdict.rank, 12);
    shd_roll_next(&roll);
    cr_assert_eq(roll.phase, SHD_ROLL_MEET);
    cr_assert_eq(roll.attempt, 1);
    say(&roll, SHD_MESSAGE_FAILED, 0, 0); /* late */
    for (int32_t node = 0; node < 3; node++) hello(&roll, 1, node, 1);
    cr_assert_eq(roll.phase, SHD_ROLL_RUN);
    cr_assert_eq(shd_roll_first_rank(&roll, 3), 3);
    shd_roll_fini(&roll);
}

Test(roll, is_over_when_every_node_is_done) {
    shd_roll roll;
    gather(&roll, 2);
    say(&roll, SHD_MESSAGE_DONE, 0, 1);
    say(&roll, SHD_MESSAGE_DONE, 0, 1);
    cr_assert_eq(roll.phase, SHD_ROLL_RUN);
    shd_roll_apply(&roll, &(shd_message){.kind = SHD_MESSAGE_STOP, .node = 0, .signal = 15});
    shd_roll_apply(&roll, &(shd_message){.kind = SHD_MESSAGE_STOP, .node = 1, .signal = 2});
    shd_roll_apply(&roll, &(shd_message){.kind = SHD_MESSAGE_DONE, .node = 0, .stopped = true});
    cr_assert_eq(roll.phase, SHD_ROLL_OVER);
    cr_assert_not(shd_roll_failed(&roll));
    cr_assert(roll.stopped);
    cr_assert_eq(roll.stop_signal, 15, "the first one counts");
    shd_roll_fini(&roll);
}

Test(roll, a_lost_node_ends_a_run_and_may_come_again_to_a_meeting) {
    shd_roll roll;
    gather(&roll, 2);
    say(&roll, SHD_MESSAGE_LOST, 0, 1);
    cr_assert(shd_roll_failed(&roll));
    cr_assert_eq(roll.verdict.kind, SHD_MESSAGE_LOST);
    shd_roll_next(&roll);
    hello(&roll, 1, 1, 1);
    say(&roll, SHD_MESSAGE_LOST, 0, 1);
    say(&roll, SHD_MESSAGE_LOST, 0, 1);
    hello(&roll, 1, 0, 1);
    cr_assert_eq(roll.phase, SHD_ROLL_MEET);
    hello(&roll, 1, 1, 5);
    cr_assert_eq(roll.phase, SHD_ROLL_RUN);
    cr_assert_eq(shd_roll_first_rank(&roll, 2), 6);
    shd_roll_fini(&roll);
}

Test(roll, a_lost_launcher_that_wakes_up_changes_nothing) {
    static const shd_message_kind kinds[] = {SHD_MESSAGE_HELLO, SHD_MESSAGE_FAILED, SHD_MESSAGE_STOP, SHD_MESSAGE_BYE};
    shd_message old = {.node = 1, .launcher = 2}, next = {.kind = SHD_MESSAGE_HELLO, .node = 1, .launcher = 3};
    shd_roll roll;
    cr_assert_eq(shd_roll_init(&roll, 2), SHERD_OK);
    hello(&roll, 0, 0, 1);
    shd_roll_apply(&roll, &old);
    cr_assert_eq(roll.phase, SHD_ROLL_RUN);
    cr_assert_not(shd_roll_ignores(&roll, &old));
    say(&roll, SHD_MESSAGE_LOST, 0, 1);
    shd_roll_next(&roll);
    hello(&roll, 1, 0, 1);
    old.attempt = next.attempt = 1;
    for (int running = 0; running < 2; running++) {
        cr_assert(shd_roll_ignores(&roll, &old));
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
            old.kind = kinds[i];
            old.signal = 15;
            shd_roll_apply(&roll, &old);
            cr_assert_eq(roll.phase, running ? SHD_ROLL_RUN : SHD_ROLL_MEET, "kind %d", (int)old.kind);
            cr_assert_eq(roll.stop_signal, 0);
        }
        shd_roll_apply(&roll, &next);
    }
    next.kind = SHD_MESSAGE_BYE;
    shd_roll_apply(&roll, &next);
    cr_assert(shd_roll_failed(&roll), "the one that took its place counts");
    shd_roll_fini(&roll);
}

Test(roll, a_node_that_leaves_ends_a_meeting_too) {
    shd_roll roll;
    cr_assert_eq(shd_roll_init(&roll, 2), SHERD_OK);
    hello(&roll, 0, 0, 1);
    say(&roll, SHD_MESSAGE_BYE, 0, 1);
    cr_assert(shd_roll_failed(&roll));
    shd_roll_fini(&roll);
    gather(&roll, 2);
    say(&roll, SHD_MESSAGE_BYE, 0, 1);
    cr_assert_eq(roll.verdict.kind, SHD_MESSAGE_BYE);
    shd_roll_fini(&roll);
}

Test(roll, numbers_that_are_no_nodes_change_nothing) {
    shd_roll roll;
    gather(&roll, 2);
    for (int kind = 0; kind < SHD_MESSAGES; kind++) {
        say(&roll, (shd_message_kind)kind, 0, -1);
        say(&roll, (shd_message_kind)kind, 0, 2);
    }
    cr_assert_eq(roll.phase, SHD_ROLL_RUN);
    cr_assert_eq(roll.stop_signal, 0);
    shd_roll_fini(&roll);
    cr_assert_eq(shd_roll_init(&roll, 0), SHERD_ARGUMENT);
    cr_assert_eq(shd_roll_init(&roll, SHD_ROLL_MAX_NODES + 1), SHERD_ARGUMENT);
}

Test(roll, names_at_most_eight_that_are_missing) {
    shd_roll roll;
    char missing[128];
    cr_assert_eq(shd_roll_init(&roll, 20), SHERD_OK);
    hello(&roll, 0, 1, 1);
    shd_roll_missing(&roll, missing, sizeof missing);
    cr_assert_str_eq(missing, "0, 2, 3, 4, 5, 6, 7, 8 and 11 more");
    shd_roll_missing(&roll, missing, 5);
    cr_assert_lt(strlen(missing), 5);
    shd_roll_fini(&roll);
}

Test(message, comes_back_from_its_line) {
    shd_message message = {.kind = SHD_MESSAGE_HELLO,
                           .node = 3,
                           .launcher = 12,
                           .attempt = 2,
                           .count = 8,
                           .node_count = 4,
                           .max_restarts = 5,
                           .port = 65535,
                           .pid = 77,
                           .host = "host-1",
                           .address = "fe80::1%eth0"};
    char line[SHD_MESSAGE_BYTES];
    shd_message read;
    shd_message_print(&message, line);
    cr_assert(shd_message_read(line, &read));
    cr_assert_eq(memcmp(&read, &message, sizeof read), 0, "%s", line);
    message = (shd_message){.kind = SHD_MESSAGE_FAILED, .rank = 9, .exit_code = 255, .signal = 31, .stopped = true};
    memset(message.host, 'h', sizeof message.host - 1);
    memset(message.run_id, 'r', sizeof message.run_id - 1);
    memset(message.address, 'a', sizeof message.address - 1);
    shd_message_print(&message, line);
    cr_assert(shd_message_read(line, &read));
    cr_assert_eq(memcmp(&read, &message, sizeof read), 0);
}

Test(message, that_is_none_is_refused) {
    static const char *const bad[] = {"", "HELLO", "HELLO 1 2 3 4 5 6 7 8 9 10 11 12 a b",
                                      "WHO 1 2 3 4 5 6 7 8 9 10 11 12 a b c", "HELLO 1 2 3 4 5 6 x 8 9 10 11 12 a b c"};
    shd_message read;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) cr_assert_not(shd_message_read(bad[i], &read), "%s", bad[i]);
}
