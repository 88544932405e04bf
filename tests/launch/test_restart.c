/* Attempts of a job, whose ranks are shell scripts that write into a folder. */
#include "runtime/base/clock.h"
#include "runtime/launch/backoff.h"
#include "runtime/launch/launch.h"
#include "tests/launch/job_folder.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void set_up(void) {
    signal(SIGTERM, SIG_DFL);
    make_folder();
}

TestSuite(restart, .init = set_up, .fini = remove_folder, .timeout = 60);

static shd_launch shell(int32_t ranks, int32_t restarts, char *const argv[4]) {
    shd_launch launch = SHD_LAUNCH_INIT;
    launch.rank_count = ranks;
    launch.max_restarts = restarts;
    launch.restart_delay_s = 0;
    launch.argv = argv;
    launch.grace_s = 0.3;
    return launch;
}
#define SHELL(script) ((char *const[4]){(char *)"sh", (char *)"-c", (char *)(script), NULL})

Test(restart, starts_all_ranks_again_until_they_succeed) {
    shd_launch launch = shell(3, 5,
                              SHELL("echo $TORCHELASTIC_RESTART_COUNT/$TORCHELASTIC_MAX_RESTARTS >>$DIR/$RANK;"
                                    "[ $RANK = 1 ] && [ $TORCHELASTIC_RESTART_COUNT -lt 2 ] && exit 7;"
                                    "[ $TORCHELASTIC_RESTART_COUNT = 2 ] || sleep 30"));
    launch.grace_s = 3;
    shd_launch_report report;
    cr_assert_eq(shd_launch_run(&launch, &report), SHERD_OK);
    cr_assert_eq(report.failed_rank, -1);
    cr_assert_eq(report.attempt, 2);
    cr_assert_str_eq(written("1"), "0/5\n1/5\n2/5\n");
    cr_assert(strstr(written("0"), "2/5\n"));
    cr_assert(strstr(written("2"), "2/5\n"));
}

Test(restart, gives_up_after_as_many_as_were_allowed) {
    shd_launch launch = shell(2, 2, SHELL("echo $MASTER_PORT >>$DIR/ports$RANK; exit $((3 + RANK))"));
    shd_launch_report report;
    cr_assert_eq(shd_launch_run(&launch, &report), SHERD_OK);
    cr_assert_geq(report.failed_rank, 0);
    cr_assert_eq(report.exit_code, 3 + report.failed_rank);
    cr_assert_eq(report.attempt, 2);
}

/* What the launcher asks and tells. */
typedef struct record {
    int prepared, asked;
    int refuse_code; /* no restart after this exit code */
    double delays_s[8];
} record;

static sherd_status prepare(void *user, int32_t attempt) {
    record *heard = user;
    cr_assert_eq(attempt, heard->prepared);
    heard->prepared++;
    return SHERD_OK;
}

static bool restarts(void *user, shd_launch_report *report, double delay_s) {
    record *heard = user;
    heard->delays_s[heard->asked++] = delay_s;
    return report->exit_code != heard->refuse_code;
}

Test(restart, asks_before_each_and_waits_longer_each_time) {
    record heard = {0};
    shd_launch launch = shell(1, 3, SHELL("exit 9"));
    launch.prepare = prepare;
    launch.restarts = restarts;
    launch.user = &heard;
    launch.restart_delay_s = 0.05;
    shd_launch_report report;
    double start_ms = shd_clock_ms();
    cr_assert_eq(shd_launch_run(&launch, &report), SHERD_OK);
    cr_assert_geq(shd_clock_ms() - start_ms, 350);
    cr_assert_eq(heard.prepared, 4);
    cr_assert_eq(heard.asked, 3, "where none may follow nobody is asked");
    for (int i = 0; i < 3; i++) cr_assert_float_eq(heard.delays_s[i], 0.05 * (1 << i), 1e-9);
}

Test(restart, there_is_none_when_it_is_refused) {
    record heard = {.refuse_code = 2};
    shd_launch launch = shell(2, 9, SHELL("exit 2"));
    launch.restarts = restarts;
    launch.user = &heard;
    shd_launch_report report;
    cr_assert_eq(shd_launch_run(&launch, &report), SHERD_OK);
    cr_assert_eq(heard.asked, 1);
    cr_assert_eq(report.exit_code, 2);
    cr_assert_eq(report.attempt, 0);
}

static pid_t start_launcher(const shd_launch *launch) {
    pid_t pid = fork();
    if (pid) return pid;
    shd_launch_report report;
    if (shd_launch_run(launch, &report) != SHERD_OK) _exit(99);
    _exit(report.failed_rank >= 0 || !report.stopped ? 98 : report.stop_signal);
}

static int wait_exit(pid_t pid) {
    int state;
    cr_assert_eq(waitpid(pid, &state, 0), pid);
    return (state & 0x7f) == 0 ? (state >> 8) & 0xff : -(state & 0x7f);
}

Test(restart, a_stop_ends_the_wait_before_one) {
    shd_launch launch = shell(1, 5, SHELL("echo $TORCHELASTIC_RESTART_COUNT >>$DIR/attempts; exit 1"));
    launch.restart_delay_s = 30;
    pid_t launcher = start_launcher(&launch);
    wait_written("attempts");
    usleep(100000);
    double start_ms = shd_clock_ms();
    kill(launcher, SIGTERM);
    cr_assert_eq(wait_exit(launcher), SIGTERM);
    cr_assert_lt(shd_clock_ms() - start_ms, 5000);
    cr_assert_str_eq(written("attempts"), "0\n");
}

Test(restart, a_job_that_was_told_to_stop_is_not_started_again) {
    /* One rank ends by the signal, one fails because of it. */
    shd_launch launch = shell(2, 5,
                              SHELL("echo $TORCHELASTIC_RESTART_COUNT >>$DIR/attempts;"
                                    "[ $RANK = 1 ] && trap 'exit 1' TERM; echo up >$DIR/up$RANK;"
                                    "while :; do sleep 0.02; done"));
    pid_t launcher = start_launcher(&launch);
    wait_written("up0");
    wait_written("up1");
    kill(launcher, SIGTERM);
    int code = wait_exit(launcher);
    cr_assert(code == SIGTERM || code == 98, "%d", code);
    cr_assert_str_eq(written("attempts"), "0\n0\n");
}

Test(restart, what_an_attempt_leaves_behind_is_gone_before_the_next) {
    shd_launch launch = shell(
        1, 1,
        SHELL("[ $TORCHELASTIC_RESTART_COUNT = 1 ] && { kill -0 $(cat $DIR/left) 2>/dev/null && exit 8; exit 0; };"
              "setsid sleep 300 & echo $! >$DIR/left; exit 1"));
    shd_launch_report report;
    cr_assert_eq(shd_launch_run(&launch, &report), SHERD_OK);
    cr_assert_eq(report.failed_rank, -1, "exit code %d", report.exit_code);
}

Test(restart, a_rank_that_ends_with_0_while_others_lose_it_has_failed) {
    shd_launch launch = shell(3, 0, SHELL("[ $RANK = 1 ] && exit 0; sleep 0.1; exit 4"));
    launch.peer_failed_code = 4;
    launch.early_exit_fails = true;
    shd_launch_report report;
    cr_assert_eq(shd_launch_run(&launch, &report), SHERD_OK);
    cr_assert_eq(report.failed_rank, 1);
    cr_assert(report.early_exit);
    cr_assert_not(report.blames_peer);
    cr_assert_eq(report.exit_code, 0);

    launch.early_exit_fails = false;
    cr_assert_eq(shd_launch_run(&launch, &report), SHERD_OK);
    cr_assert(report.blames_peer);

    launch.early_exit_fails = true;
    launch.argv = SHELL("sleep 0.0$RANK; exit 0");
    cr_assert_eq(shd_launch_run(&launch, &report), SHERD_OK);
    cr_assert_eq(report.failed_rank, -1, "ranks need not end together");
}

Test(restart, waits_double_up_to_a_minute_and_begin_anew_after_a_long_attempt) {
    shd_backoff backoff = {.first_s = 1};
    static const double expected[] = {1, 2, 4, 8, 16, 32, 60, 60};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        cr_assert_eq(shd_backoff_next(&backoff, 5), expected[i]);
    cr_assert_eq(shd_backoff_next(&backoff, 600), 1);
    cr_assert_eq(shd_backoff_next(&backoff, 599), 2);
    backoff = (shd_backoff){.first_s = 0};
    for (int i = 0; i < 5; i++) cr_assert_eq(shd_backoff_next(&backoff, 0), 0);
    backoff = (shd_backoff){.first_s = 300};
    for (int i = 0; i < 3; i++) cr_assert_eq(shd_backoff_next(&backoff, 0), 300);
}
