/* Which of the causes that ranks tell their launcher is shown. */
#include "runtime/cli/cause.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <unistd.h>

/* Finds the cause of `count` records. */
static shd_cause find_first(const shd_cause *records, size_t count) {
    shd_cause found;
    int file = shd_causes_create();
    cr_assert_geq(file, 0);
    for (size_t i = 0; i < count; i++)
        cr_assert(shd_causes_add(file, records[i].rank, records[i].status, records[i].text));
    cr_assert(shd_causes_first(file, &found));
    close(file);
    return found;
}

Test(cause, of_the_rank_that_failed_stands_before_what_others_say_of_it) {
    static const char *const said[][2] = {
        {"rank 2: cannot read", "cannot read"},
        {"step 6 could not be saved: rank 2: No space left", "step 6 could not be saved: No space left"},
        {"1 of 2 failed; the last failure: rank 2: No space left", "1 of 2 failed; the last failure: No space left"}};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        shd_cause records[2] = {{.rank = 0, .status = SHERD_IO}, {.rank = 2, .status = SHERD_IO}};
        snprintf(records[0].text, sizeof records[0].text, "%s", said[i][0]);
        snprintf(records[1].text, sizeof records[1].text, "%s", said[i][1]);
        shd_cause found = find_first(records, 2);
        cr_assert_eq(found.rank, 2, "%s", said[i][0]);
        cr_assert_eq(found.pid, getpid());
        cr_assert_str_eq(found.text, said[i][1]);
        found = find_first(records, 1);
        cr_assert_eq(found.rank, 2, "%s", said[i][0]);
        cr_assert_eq(found.pid, 0, "it has not spoken for itself");
        cr_assert_str_eq(found.text, said[i][1]);
    }
}

Test(cause, is_a_ranks_own_where_it_names_nobody_else) {
    static const char *const said[] = {"cannot read", "rank 1: cannot read", "a: rank 1: b", "a: rank x: b",
                                       "rank 2 is odd"};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        shd_cause records[2] = {{.rank = 0, .status = SHERD_PEER, .text = "rank 3 is gone"},
                                {.rank = 1, .status = SHERD_IO}};
        snprintf(records[1].text, sizeof records[1].text, "%s", said[i]);
        shd_cause found = find_first(records, 2);
        cr_assert_eq(found.rank, 1, "%s", said[i]);
        cr_assert_str_eq(found.text, said[i]);
    }
}
