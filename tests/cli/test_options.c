#include "runtime/cli/options.h"

#include "runtime/cli/verdict.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 300, QUIET };

static const shd_option options[] = {
    {'n', "ranks", "RANKS", "how many"},
    {STEPS, "steps", "STEPS", "how long"},
    {'q', "quiet", NULL, "say less"},
    {'v', NULL, NULL, "say more"},
    {0},
};
static const shd_command command = {.name = "try", .usage = "[OPTIONS]", .about = "Tries.", .options = options};

/* "n=2 q file" for -n 2 -q file; "!2" where it stops with exit code 2. */
static const char *parse(const shd_command *described, int argc, const char *const *argv) {
    static char text[256];
    *text = 0;
    shd_arguments arguments = shd_arguments_begin(described, argc, (char **)argv);
    for (int id; (id = shd_arguments_next(&arguments)) != SHD_ARGUMENT_END;) {
        size_t used = strlen(text);
        char *at = text + used + (used ? 1 : 0);
        if (used) text[used] = ' ';
        size_t room = sizeof text - (size_t)(at - text);
        if (id == SHD_ARGUMENT_STOP) {
            snprintf(at, room, "!%d", arguments.exit_code);
            break;
        }
        if (id == SHD_ARGUMENT_OPERAND)
            snprintf(at, room, "%s", arguments.value);
        else if (arguments.value)
            snprintf(at, room, "%s=%s", id == STEPS ? "steps" : (char[]){(char)id, 0}, arguments.value);
        else
            snprintf(at, room, "%c", id);
    }
    return text;
}
#define PARSE(...)                                                                                                     \
    parse(&command, (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)), (const char *[]){__VA_ARGS__})

TestSuite(options, .init = cr_redirect_stderr);

Test(options, values_may_stand_apart_or_together) {
    cr_assert_str_eq(PARSE("-n", "2"), "n=2");
    cr_assert_str_eq(PARSE("-n2"), "n=2");
    cr_assert_str_eq(PARSE("--ranks", "2"), "n=2");
    cr_assert_str_eq(PARSE("--ranks=2"), "n=2");
    cr_assert_str_eq(PARSE("--steps=-3"), "steps=-3");
    cr_assert_str_eq(PARSE("--steps", "--quiet"), "steps=--quiet");
    cr_assert_str_eq(PARSE("--ranks="), "n=");
}

Test(options, letters_may_be_clustered) {
    cr_assert_str_eq(PARSE("-qv", "-q"), "q v q");
    cr_assert_str_eq(PARSE("-qn2", "file"), "q n=2 file");
    cr_assert_str_eq(PARSE("-vqn", "2"), "v q n=2");
}

Test(options, operands_may_stand_anywhere_and_two_dashes_end_options) {
    cr_assert_str_eq(PARSE("a", "-q", "b"), "a q b");
    cr_assert_str_eq(PARSE("-q", "--", "-q", "--ranks"), "q -q --ranks");
    cr_assert_str_eq(PARSE("-", "-q"), "- q");
    cr_assert_str_eq(PARSE(""), "");
}

Test(options, a_command_may_end_its_options_at_the_first_operand) {
    shd_command last = command;
    last.operands_last = true;
    cr_assert_str_eq(parse(&last, 4, (const char *[]){"-q", "program", "-q", "--ranks=2"}), "q program -q --ranks=2");
}

Test(options, mistakes_stop_with_exit_code_2) {
    cr_assert_str_eq(PARSE("--rank", "2"), "!2");
    cr_assert_str_eq(PARSE("-x"), "!2");
    cr_assert_str_eq(PARSE("-qx"), "q !2");
    cr_assert_str_eq(PARSE("-n"), "!2");
    cr_assert_str_eq(PARSE("--ranks"), "!2");
    cr_assert_str_eq(PARSE("--quiet=1"), "!2");
    cr_assert_str_eq(PARSE("--=2"), "!2");
}

Test(options, a_mistake_is_answered_with_the_nearest_name) {
    PARSE("--rnaks=2");
    fflush(stderr);
    cr_assert_stderr_eq_str("sherd: unknown option --rnaks; did you mean --ranks?\nusage: sherd try [OPTIONS]\n"
                            "'sherd try --help' tells more.\n");
}

Test(options, nothing_near_gives_no_hint) {
    PARSE("--frobnicate");
    fflush(stderr);
    cr_assert_stderr_eq_str("sherd: unknown option --frobnicate\nusage: sherd try [OPTIONS]\n"
                            "'sherd try --help' tells more.\n");
}

Test(options, help_names_every_option, .init = cr_redirect_stdout) {
    cr_assert_str_eq(PARSE("--help"), "!0");
    cr_assert_str_eq(PARSE("-h"), "!0");
    shd_command twice = command;
    shd_command_help(&twice);
    fflush(stdout);
    char text[8192];
    size_t got = fread(text, 1, sizeof text - 1, cr_get_redirected_stdout());
    text[got] = 0;
    for (const char *const *word =
             (const char *const[]){"-n, --ranks RANKS", "--steps STEPS", "-q, --quiet", "-v ", "--help", NULL};
         *word; word++)
        cr_assert(strstr(text, *word), "%s", *word);
}

Test(options, numbers_are_whole_and_in_range) {
    int64_t value = 7;
    cr_assert(shd_parse_integer("12", 1, 64, &value));
    cr_assert_eq(value, 12);
    for (const char *const *bad = (const char *const[]){"", "0", "65", "1e1", "2x", "1.0", "99999999999999999999", " 2",
                                                        "+2", "2 ", "0x2", NULL};
         *bad; bad++)
        cr_assert_not(shd_parse_integer(*bad, 1, 64, &value), "%s", *bad);
    cr_assert_eq(value, 12);
    double real;
    cr_assert(shd_parse_number("0.5", 0, 1, &real));
    cr_assert_eq(real, 0.5);
    cr_assert(shd_parse_number("2.5e-1", 0, 1, &real));
    cr_assert_eq(real, 0.25);
    for (const char *const *bad =
             (const char *const[]){"", "nan", "inf", "1.5", "0x1p-2", " 0.5", "0.5 ", "e", "0,5", NULL};
         *bad; bad++)
        cr_assert_not(shd_parse_number(*bad, 0, 1, &real), "%s", *bad);
    cr_assert_eq(real, 0.25);
}

Test(options, the_nearest_name_is_near) {
    static const char *const names[] = {"train", "run", "plan", "checkpoint export"};
    cr_assert_str_eq(shd_nearest_name("trian", names, 4, sizeof *names), "train");
    cr_assert_str_eq(shd_nearest_name("pan", names, 4, sizeof *names), "plan");
    cr_assert_str_eq(shd_nearest_name("check", names, 4, sizeof *names), "checkpoint export");
    cr_assert_null(shd_nearest_name("serve", names, 4, sizeof *names));
    cr_assert_null(shd_nearest_name("x", names, 4, sizeof *names));
}

Test(verdict, a_status_has_the_exit_code_of_the_manual) {
    cr_assert_eq(shd_status_exit_code(SHERD_OK), 0);
    cr_assert_eq(shd_status_exit_code(SHERD_NUMERIC), 1);
    cr_assert_eq(shd_status_exit_code(SHERD_IO), 1);
    cr_assert_eq(shd_status_exit_code(SHERD_CONFIG), 2);
    cr_assert_eq(shd_status_exit_code(SHERD_DATA), 3);
    cr_assert_eq(shd_status_exit_code(SHERD_PEER), 4);
    cr_assert_eq(shd_status_exit_code(SHERD_TIMEOUT), 4);
    cr_assert_eq(shd_status_exit_code(SHERD_COMM), 4);
}

/* What every report of a job on one node has. */
#define ON_TWO_RANKS .world_size = 2, .node = -1, .lost_node = -1

Test(verdict, who_only_missed_another_rank_is_not_called_the_one_that_failed) {
    const shd_launch launch = {.rank_count = 2};
    const shd_launch_report report = {ON_TWO_RANKS,   .failed_rank = 0,    .failed_pid = 12,
                                      .exit_code = 4, .blames_peer = true, .terminated = 1};
    cr_redirect_stderr();
    shd_report_say(&launch, &report);
    fflush(stderr);
    cr_assert_stderr_eq_str(
        "sherd: rank 0 of 2 (pid 12) gave up: another rank was lost or hung; the others were ended\n");
}

static void add_as(int file, int32_t rank, sherd_status status, const char *text) {
    cr_assert(shd_causes_add(file, rank, status, text));
}

Test(cause, a_rank_s_own_failure_is_shown_before_what_others_say_of_it) {
    shd_cause cause;
    int file = shd_causes_create();
    cr_assert_not(shd_causes_first(file, &cause));
    add_as(file, 2, SHERD_PEER, "rank 0 failed at the start: no room");
    cr_assert(shd_causes_first(file, &cause));
    cr_assert_eq(cause.rank, 2);
    cr_assert(shd_cause_blames_peer(&cause));
    add_as(file, 1, SHERD_MEMORY, "rank 0: no room");
    cr_assert(shd_causes_first(file, &cause));
    cr_assert_eq(cause.rank, 0);
    cr_assert_eq(cause.pid, 0);
    cr_assert_str_eq(cause.text, "no room");
    add_as(file, 0, SHERD_MEMORY, "no room");
    add_as(file, 3, SHERD_MEMORY, "no room either");
    cr_assert(shd_causes_first(file, &cause));
    cr_assert_eq(cause.rank, 0);
    cr_assert_eq(cause.pid, getpid());
    cr_assert_eq(cause.status, SHERD_MEMORY);
    close(file);
    cr_assert_not(shd_causes_add(0, 0, SHERD_IO, "not into a file of somebody else"));
    cr_assert_not(shd_causes_add(-1, 0, SHERD_IO, "nor nowhere"));
}

Test(verdict, the_cause_s_rank_is_the_one_that_failed_but_for_a_signal) {
    const shd_launch launch = {.rank_count = 2};
    const shd_cause own = {.rank = 0, .pid = 11, .status = SHERD_MEMORY, .text = "no room"};
    const shd_cause late = {.rank = 1, .pid = 12, .status = SHERD_TIMEOUT, .text = "rank 1 waited 2 s"};
    shd_launch_report report = {ON_TWO_RANKS, .failed_rank = 1, .failed_pid = 12, .exit_code = 4, .blames_peer = true};
    cr_redirect_stderr();
    shd_report_take_cause(&report, &own);
    shd_report_say(&launch, &report);
    cr_assert_eq(shd_report_train_exit_code(&report), 1);
    report = (shd_launch_report){ON_TWO_RANKS, .failed_rank = 0, .failed_pid = 11, .exit_code = 4, .blames_peer = true};
    shd_report_take_cause(&report, &late);
    shd_report_say(&launch, &report);
    report = (shd_launch_report){ON_TWO_RANKS, .failed_rank = 0, .failed_pid = 11, .signal = 9};
    shd_report_take_cause(&report, &late);
    report = (shd_launch_report){ON_TWO_RANKS, .failed_rank = -1, .stopped = true, .stop_signal = 15};
    shd_report_take_cause(&report, &own);
    fflush(stderr);
    cr_assert_stderr_eq_str("sherd: rank 0: no room\n"
                            "sherd: rank 0 of 2 (pid 11) failed with exit code 1\n"
                            "sherd: rank 1 waited 2 s\n"
                            "sherd: rank 1 of 2 (pid 12) gave up: another rank was lost or hung\n");
}

Test(verdict, a_rank_that_was_told_to_stop_has_not_failed) {
    const shd_launch launch = {.rank_count = 2};
    shd_launch_report report = {ON_TWO_RANKS, .failed_rank = 1, .failed_pid = 12, .exit_code = 130};
    cr_redirect_stderr();
    shd_report_say(&launch, &report);
    cr_assert_eq(shd_report_train_exit_code(&report), 130);
    report = (shd_launch_report){ON_TWO_RANKS, .failed_rank = 0, .failed_pid = 11, .exit_code = 139};
    shd_report_say(&launch, &report);
    fflush(stderr);
    cr_assert_stderr_eq_str("sherd: rank 1 of 2 (pid 12) was stopped by signal 2 (SIGINT)\n"
                            "sherd: rank 0 of 2 (pid 11) failed with exit code 139\n");
}

Test(verdict, a_lost_rank_is_4_for_train_and_its_signal_for_run) {
    shd_launch_report report = {ON_TWO_RANKS, .failed_rank = 1, .signal = 9};
    cr_assert_eq(shd_report_train_exit_code(&report), 4);
    cr_assert_eq(shd_report_exit_code(&report), 137);
    report = (shd_launch_report){ON_TWO_RANKS, .failed_rank = 1, .exit_code = 3};
    cr_assert_eq(shd_report_train_exit_code(&report), 3);
    cr_assert_eq(shd_report_exit_code(&report), 3);
    report = (shd_launch_report){ON_TWO_RANKS, .failed_rank = -1, .stop_signal = 15, .stopped = true};
    cr_assert_eq(shd_report_train_exit_code(&report), 143);
    report = (shd_launch_report){ON_TWO_RANKS, .failed_rank = -1, .stop_signal = 15};
    cr_assert_eq(shd_report_exit_code(&report), 0);
}
