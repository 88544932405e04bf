#include "runtime/launch/failure.h"

#include "runtime/base/memory.h"
#include "runtime/launch/ends.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <sherd/status.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64], path[PATH_MAX];

static void make_folder(void) {
    snprintf(folder, sizeof folder, "/tmp/sherd-failure-XXXXXX");
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/failure.json", folder);
}
static void remove_folder(void) {
    unlink(path);
    rmdir(folder);
}
TestSuite(failure, .init = make_folder, .fini = remove_folder);

static shd_rank_end end_of(int exit_code, int signal, int told, double ended_ms) {
    return (shd_rank_end){
        .pid = 100, .ended = true, .exit_code = exit_code, .signal = signal, .told = told, .ended_ms = ended_ms};
}

Test(failure, kinds_of_ends_are_told_apart) {
    const struct {
        shd_rank_end end;
        shd_end_kind kind;
        const char *text;
    } cases[] = {
        {end_of(0, 0, 0, 1), SHD_END_DONE, "done, exit code 0"},
        {end_of(3, 0, 0, 1), SHD_END_FAILED, "exit code 3"},
        {end_of(4, 0, 0, 1), SHD_END_LOST_PEER, "lost another rank (4)"},
        {end_of(4, 0, SIGTERM, 1), SHD_END_LOST_PEER, "lost another rank (4)"},
        {end_of(0, SIGSEGV, 0, 1), SHD_END_SIGNAL, "killed by SEGV"},
        {end_of(0, SIGKILL, 0, 1), SHD_END_SIGNAL, "killed by KILL"},
        {end_of(0, SIGSEGV, SIGTERM, 1), SHD_END_SIGNAL, "killed by SEGV"},
        {end_of(0, SIGTERM, SIGTERM, 1), SHD_END_TOLD, "ended by TERM"},
        {end_of(143, 0, SIGTERM, 1), SHD_END_TOLD, "ended by TERM"},
        {end_of(0, 0, SIGTERM, 1), SHD_END_TOLD, "ended by TERM"},
        {end_of(9, 0, SIGTERM, 1), SHD_END_TOLD_CODE, "exit code 9 after TERM"},
        {end_of(0, SIGKILL, SIGKILL, 1), SHD_END_KILLED, "had to be killed"},
        {{0}, SHD_END_NONE, "not started"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[64];
        cr_assert_eq(shd_end_kind_of(&cases[i].end, 4), cases[i].kind, "case %zu", i);
        shd_end_text(&cases[i].end, cases[i].kind, text);
        cr_assert_str_eq(text, cases[i].text, "case %zu: %s", i, text);
    }
}

Test(failure, ranks_are_written_as_people_do) {
    char text[16];
    shd_ranks_text((const int32_t[]){0, 1, 2, 5, 7, 8}, 6, text, sizeof text);
    cr_assert_str_eq(text, "0-2,5,7-8");
    shd_ranks_text((const int32_t[]){100, 102, 104, 106, 108}, 5, text, sizeof text);
    cr_assert_str_eq(text, "100,102,104,…");
}

Test(failure, the_text_names_what_is_known_in_80_columns) {
    shd_rank_end ends[6] = {end_of(0, 0, 0, 100),
                            end_of(0, SIGKILL, SIGKILL, 3620),
                            end_of(7, 0, 0, 620),
                            end_of(0, SIGTERM, SIGTERM, 630),
                            end_of(0, SIGTERM, SIGTERM, 640),
                            end_of(143, 0, SIGTERM, 650)};
    const shd_output output = {
        .log_dir = folder, .rank_count = 6, .first_rank = 10, .ends = ends, .folder = "/logs/attempt_2"};
    const shd_launch_report report = {
        .failed_rank = 12, .failed_pid = 100, .exit_code = 7, .world_size = 20, .attempt = 2};
    const shd_failure failure = {.report = &report,
                                 .output = &output,
                                 .host = "node7",
                                 .step = 41,
                                 .phase = "training",
                                 .noticed = "rank 12 died, waiting in BACKWARD head of step 42",
                                 .error = {.message = (char *)"ValueError: \033[31mbad\nsecond line"},
                                 .last_lines = (char *)"one\ntwo\n"};
    char *text = shd_failure_text(&failure);
    cr_assert_str_eq(text,
                     "  when      training, after step 41, 0.62 s after its start, restart 2\n"
                     "  host      node7\n"
                     "  noticed   rank 12 died, waiting in BACKWARD head of step 42\n"
                     "  it said\n"
                     "    | ValueError: bad\n"
                     "    | second line\n"
                     "  its last lines, of /logs/attempt_2/12/\n"
                     "    | one\n"
                     "    | two\n"
                     "  the other ranks of this host\n"
                     "    10              done, exit code 0      0.52 s before\n"
                     "    11              had to be killed       3.00 s after\n"
                     "    13-14           ended by TERM          0.02 s after\n"
                     "    15              ended by TERM          0.03 s after\n",
                     "%s", text);
    for (const char *line = text; *line; line = strchr(line, '\n') + 1) cr_assert_leq(strcspn(line, "\n"), 80);
    shd_failure_text_free(text);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}

Test(failure, what_was_said_is_not_said_again) {
    shd_rank_end ends[1] = {end_of(1, 0, 0, 620)};
    const shd_output output = {
        .log_dir = folder, .rank_count = 1, .ends = ends, .folder = "/logs/attempt_0", .own_prefix = "sherd: "};
    const shd_launch_report report = {.world_size = 1, .exit_code = 1};
    shd_failure failure = {.report = &report,
                           .output = &output,
                           .step = -1,
                           .cause = "no memory for x",
                           .error = {.message = (char *)"no memory for x"},
                           .last_lines = (char *)"sherd: training\nsherd: no memory for x\n"};
    char *text = shd_failure_text(&failure);
    cr_assert_str_eq(text, "  when      0.62 s after its start\n");
    shd_failure_text_free(text);
    failure.last_lines = (char *)"sherd: training\nfree(): invalid pointer\n";
    text = shd_failure_text(&failure);
    cr_assert(strstr(text, "free(): invalid pointer"));
    shd_failure_text_free(text);
}

Test(failure, programs_read_the_same_as_json) {
    shd_rank_end ends[2] = {end_of(0, SIGSEGV, 0, 620), end_of(0, SIGTERM, SIGTERM, 630)};
    const shd_output output = {.log_dir = folder, .rank_count = 2, .ends = ends, .folder = "/logs/attempt_0"};
    const shd_launch_report report = {.failed_pid = 100, .signal = SIGSEGV, .world_size = 2};
    const shd_failure failure = {.report = &report,
                                 .output = &output,
                                 .host = "h\xff",
                                 .step = -1,
                                 .error = {.message = (char *)"bad \xff\n\"x\""},
                                 .last_lines = (char *)"one\ntwo\n"};
    cr_assert_eq(shd_failure_write(&failure, path), SHERD_OK, "%s", sherd_last_error());
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    cr_assert(root);
    cr_assert_eq(json_integer_value(json_object_get(root, "rank")), 0);
    cr_assert_str_eq(json_string_value(json_object_get(root, "signal")), "SEGV");
    cr_assert(json_is_null(json_object_get(root, "exit_code")) && json_is_null(json_object_get(root, "step")));
    cr_assert_str_eq(json_string_value(json_object_get(root, "error")), "bad ?\n\"x\"");
    cr_assert_str_eq(json_string_value(json_object_get(root, "logs")), "/logs/attempt_0/0/");
    cr_assert_str_eq(json_string_value(json_array_get(json_object_get(root, "last_lines"), 1)), "two");
    const json_t *other = json_array_get(json_object_get(root, "ranks"), 1);
    cr_assert_str_eq(json_string_value(json_object_get(other, "end")), "ended as told");
    cr_assert_float_eq(json_real_value(json_object_get(other, "seconds_after_failure")), 0.01, 1e-9);
    json_decref(root);
    cr_assert_eq(shd_failure_write(&failure, "/nowhere/failure.json"), SHERD_IO);
}

Test(failure, of_another_host_is_not_told_here) {
    shd_rank_end ends[2] = {{0}};
    const shd_output output = {.rank_count = 2, .first_rank = 2, .ends = ends};
    shd_launch_report report = {.failed_rank = 1};
    shd_failure failure;
    cr_assert_not(shd_failure_collect(&failure, &report, &output));
    report.failed_rank = 4;
    cr_assert_not(shd_failure_collect(&failure, &report, &output));
    report.failed_rank = -1;
    cr_assert_not(shd_failure_collect(&failure, &report, &output));
}
