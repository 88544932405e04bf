#include "runtime/cli/saving.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(saving, .timeout = 30);

/* A rank that saves; with `busy` it writes without an end. */
static pid_t start_rank(int file, int32_t rank, bool busy) {
    pid_t child = fork();
    if (child != 0) return child;
    shd_saving_slot *slots = shd_saving_map(file, 3);
    if (!slots) _exit(1);
    int sink = open("/dev/null", O_WRONLY);
    shd_saving_mark(&slots[rank], true);
    while (!busy) pause();
    for (char text[100] = ""; write(sink, text, sizeof text) > 0; usleep(1000)) {}
    _exit(2);
}

static void wait_marked(const shd_saving_slot *slot) {
    while (slot->pid == 0) usleep(1000);
}

static void end_rank(pid_t child) {
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

Test(saving, goes_on_while_bytes_move) {
    int file = shd_saving_create(3);
    shd_saving_slot *slots = shd_saving_map(file, 3);
    cr_assert_not_null(slots);
    shd_saving_watch watch = {.slots = slots, .rank_count = 3, .patience_ms = 100};
    cr_assert_not(shd_saving_goes_on(&watch));
    pid_t rank = start_rank(file, 1, true);
    wait_marked(&slots[1]);
    for (int i = 0; i < 20; i++) {
        cr_assert(shd_saving_goes_on(&watch), "look %d", i);
        usleep(20000);
    }
    end_rank(rank); /* which does not take its word back */
    cr_assert_not(shd_saving_goes_on(&watch));
}

Test(saving, is_given_up_when_nothing_moves) {
    int file = shd_saving_create(3);
    shd_saving_slot *slots = shd_saving_map(file, 3);
    shd_saving_watch watch = {.slots = slots, .rank_count = 3, .patience_ms = 200};
    pid_t rank = start_rank(file, 2, false);
    wait_marked(&slots[2]);
    cr_assert(shd_saving_goes_on(&watch));
    usleep(300000);
    cr_assert_not(shd_saving_goes_on(&watch));
    /* Another rank that gets on is enough. */
    pid_t other = start_rank(file, 0, true);
    wait_marked(&slots[0]);
    usleep(20000);
    cr_assert(shd_saving_goes_on(&watch));
    end_rank(rank);
    end_rank(other);
}

Test(saving, is_only_read_from_the_file_that_was_made_for_it) {
    int file = shd_saving_create(3), other = open("/dev/null", O_RDWR);
    cr_assert_null(shd_saving_map(-1, 3));
    cr_assert_null(shd_saving_map(other, 3));
    cr_assert_null(shd_saving_map(file, 4));
    shd_saving_slot *slots = shd_saving_map(file, 3);
    slots[0].step_ms = 5;
    slots[2].step_ms = 70;
    const shd_saving_watch watch = {.slots = slots, .rank_count = 3}, none = {.slots = NULL, .rank_count = 3};
    cr_assert_eq(shd_saving_step_ms(&watch), 70);
    cr_assert_eq(shd_saving_step_ms(&none), 0);
}

Test(saving, knows_who_was_told_to_stop_first) {
    int file = shd_saving_create(3);
    shd_saving_slot *slots = shd_saving_map(file, 3);
    cr_assert_eq(shd_saving_first_told(slots, 3), -1);
    cr_assert_eq(shd_saving_first_told(NULL, 3), -1);
    shd_saving_mark_told(&slots[2]);
    usleep(3000);
    shd_saving_mark_told(&slots[0]);
    cr_assert_eq(shd_saving_first_told(slots, 3), 2);
    cr_assert_eq(slots[2].told, (int32_t)getpid());
    shd_saving_clear(slots, 3);
    cr_assert_eq(shd_saving_first_told(slots, 3), -1);
}
