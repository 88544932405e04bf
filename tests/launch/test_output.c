/* Ranks are shell scripts that shd_launch_run starts. */
#include "runtime/launch/output.h"

#include "runtime/base/memory.h"
#include "runtime/launch/launch.h"
#include "tests/launch/job_folder.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <sherd/status.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char logs[80];

static void prepare(void) {
    make_folder();
    snprintf(logs, sizeof logs, "%s/deep/logs", folder);
}

TestSuite(output, .init = prepare, .fini = remove_folder, .timeout = 60);

static shd_launch_report run(shd_output *output, int32_t ranks, const char *script) {
    shd_launch launch = SHD_LAUNCH_INIT;
    shd_launch_report report;
    launch.rank_count = ranks;
    launch.argv = (char *const[]){(char *)"sh", (char *)"-c", (char *)script, NULL};
    launch.output = output;
    launch.grace_s = 0.3;
    cr_assert_eq(shd_launch_run(&launch, &report), SHERD_OK, "%s", sherd_last_error());
    return report;
}

Test(output, of_each_rank_is_in_files_of_its_own) {
    shd_output output = {.log_dir = logs};
    cr_assert_eq(shd_routes_init(&output.routes, 3, "3", NULL, NULL), SHERD_OK);
    run(&output, 3, "echo out $RANK; echo err $RANK >&2");
    for (int rank = 0; rank < 3; rank++) {
        char name[64], text[16];
        snprintf(name, sizeof name, "deep/logs/attempt_0/%d/stdout.log", rank);
        snprintf(text, sizeof text, "out %d\n", rank);
        cr_assert_str_eq(written(name), text);
        snprintf(name, sizeof name, "deep/logs/attempt_0/%d/stderr.log", rank);
        snprintf(text, sizeof text, "err %d\n", rank);
        cr_assert_str_eq(written(name), text);
    }
    run(&output, 3, "echo again");
    cr_assert_str_eq(written("deep/logs/attempt_0/1/stdout.log"), "out 1\nagain\n", "what is there is kept");
    shd_output_fini(&output);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}

Test(output, every_attempt_has_its_folder) {
    shd_output output = {.log_dir = logs};
    cr_assert_eq(shd_routes_init(&output.routes, 1, "1", NULL, NULL), SHERD_OK);
    shd_launch launch = SHD_LAUNCH_INIT;
    shd_launch_report report;
    launch.argv =
        (char *const[]){(char *)"sh", (char *)"-c",
                        (char *)"echo $TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = 1 ]", NULL};
    launch.output = &output;
    launch.max_restarts = 1;
    launch.restart_delay_s = 0;
    cr_assert_eq(shd_launch_run(&launch, &report), SHERD_OK);
    cr_assert_eq(report.failed_rank, -1);
    cr_assert_str_eq(written("deep/logs/attempt_0/0/stdout.log"), "0\n");
    cr_assert_str_eq(written("deep/logs/attempt_1/0/stdout.log"), "1\n");
    shd_output_fini(&output);
}

Test(output, knows_how_every_rank_ended) {
    shd_output output = {.log_dir = logs};
    cr_assert_eq(shd_routes_init(&output.routes, 4, "3", NULL, NULL), SHERD_OK);
    shd_launch_report report = run(&output, 4,
                                   "case $RANK in 0) echo bye; exit 0;; 1) trap '' TERM; while :; do sleep 5; done;;"
                                   "2) sleep 0.3; echo oops >&2; exit 7;; 3) exec sleep 30;; esac");
    cr_assert_eq(report.failed_rank, 2);
    const shd_rank_end *ends = output.ends;
    for (int rank = 0; rank < 4; rank++) cr_assert(ends[rank].ended && ends[rank].pid > 0);
    cr_assert(ends[0].exit_code == 0 && !ends[0].signal && !ends[0].told);
    cr_assert(ends[1].signal == SIGKILL && ends[1].told == SIGKILL);
    cr_assert(ends[2].exit_code == 7 && !ends[2].told);
    cr_assert(ends[3].signal == SIGTERM && ends[3].told == SIGTERM);
    cr_assert_eq(ends[2].pid, report.failed_pid);
    cr_assert(ends[0].ended_ms < ends[2].ended_ms && ends[2].ended_ms <= ends[3].ended_ms &&
              ends[3].ended_ms < ends[1].ended_ms);
    char *last = shd_tee_last_lines(output.tee, 2, 5);
    cr_assert_str_eq(last, "oops\n");
    shd_free(last);
    shd_output_fini(&output);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}

/* How many folders of ours are in the temporary place. */
static int count_temporary(void) {
    int count = 0;
    DIR *place = opendir(folder);
    for (struct dirent *entry; (entry = readdir(place));) count += !strncmp(entry->d_name, "sherd-errors-", 13);
    closedir(place);
    return count;
}

Test(output, ranks_have_an_error_file_also_where_there_are_no_logs) {
    shd_output output = {.temporary = folder};
    setenv("TORCHELASTIC_ERROR_FILE", "/outer", 1);
    run(&output, 2, "echo $TORCHELASTIC_ERROR_FILE >>$DIR/name$RANK; echo broken >$TORCHELASTIC_ERROR_FILE");
    char path[PATH_MAX], line[PATH_MAX + 1];
    shd_output_path(&output, 1, "error.json", path);
    snprintf(line, sizeof line, "%s\n", path);
    cr_assert_str_eq(written("name1"), line);
    cr_assert_eq(count_temporary(), 1);
    cr_assert_str_eq(written(path + strlen(folder) + 1), "broken\n", "it is there to be read");
    run(&output, 2, "cat $TORCHELASTIC_ERROR_FILE >>$DIR/stale 2>$DIR/complaint; :");
    cr_assert_str_eq(written("stale"), "", "an error of an earlier attempt");
    cr_assert_eq(count_temporary(), 1);
    shd_output_fini(&output);
    cr_assert_eq(count_temporary(), 0, "a temporary folder is left");
}

Test(output, a_launcher_that_is_killed_leaves_no_temporary_folder) {
    pid_t child = fork();
    if (!child) {
        shd_output output = {.temporary = folder};
        run(&output, 12, "echo broken >$TORCHELASTIC_ERROR_FILE; echo >$DIR/on$RANK; sleep 30");
        _exit(0);
    }
    for (int i = 0; i < 2000 && !*written("on11"); i++) usleep(5000);
    cr_assert_eq(count_temporary(), 1);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    for (int i = 0; i < 2000 && count_temporary(); i++) usleep(5000);
    cr_assert_eq(count_temporary(), 0);
}

Test(output, of_a_rank_that_cannot_be_started_is_no_matter) {
    shd_output output = {.log_dir = logs};
    cr_assert_eq(shd_routes_init(&output.routes, 2, "3", NULL, NULL), SHERD_OK);
    shd_launch launch = SHD_LAUNCH_INIT;
    shd_launch_report report;
    launch.rank_count = 2;
    launch.argv = (char *const[]){(char *)"/no/such/program", NULL};
    launch.output = &output;
    cr_assert_eq(shd_launch_run(&launch, &report), SHERD_UNSUPPORTED);
    cr_assert_eq(report.exit_code, 127);
    shd_output_fini(&output);
    output = (shd_output){.log_dir = "/proc/none"};
    launch.output = &output;
    launch.argv = (char *const[]){(char *)"true", NULL};
    cr_assert_eq(shd_launch_run(&launch, &report), SHERD_IO);
    cr_assert(strstr(sherd_last_error(), "/proc/none"), "%s", sherd_last_error());
    shd_output_fini(&output);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}

/* Four ranks write half lines at the same time, with every kind of end; the launcher's output is a pipe. */
Test(output, lines_of_ranks_that_write_at_once_are_whole) {
    int screen[2];
    cr_assert_eq(pipe2(screen, O_CLOEXEC), 0);
    pid_t child = fork();
    if (!child) {
        dup2(screen[1], 1);
        close(screen[0]);
        shd_output output = {.log_dir = logs};
        if (shd_routes_init(&output.routes, 4, NULL, "3", NULL) != SHERD_OK) _exit(1);
        run(&output, 4, "for i in 0 1 2 3 4 5 6 7 8 9; do for j in a b c d; do printf $j$RANK; done; echo; done");
        shd_output_fini(&output);
        _exit(0);
    }
    close(screen[1]);
    FILE *in = fdopen(screen[0], "r");
    char line[256], whole[64];
    int count[4] = {0}, rank;
    while (fgets(line, sizeof line, in)) {
        cr_assert_eq(sscanf(line, "[rank%d]: ", &rank), 1, "%s", line);
        snprintf(whole, sizeof whole, "[rank%d]: a%db%dc%dd%d\n", rank, rank, rank, rank, rank);
        cr_assert_str_eq(line, whole);
        count[rank]++;
    }
    fclose(in);
    for (rank = 0; rank < 4; rank++) cr_assert_eq(count[rank], 10);
}

static char state_of(int pid) {
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%*d (%*[^)]) %c", &state) != 1) state = 0;
    if (file) fclose(file);
    return state;
}

/* Lets rank `rank` go on to its end; its parent is stopped. */
static void let_end(int rank) {
    char path[128], name[16];
    snprintf(path, sizeof path, "%s/go%d", folder, rank);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    snprintf(name, sizeof name, "pid%d", rank);
    int pid = atoi(written(name));
    for (int i = 0; i < 2000 && state_of(pid) != 'Z'; i++) usleep(5000);
    cr_assert_eq(state_of(pid), 'Z');
}

/* The launcher looks when three ranks have ended: the one that a signal has killed is the loudest, and not the first. */
Test(output, the_first_failure_is_that_of_the_rank_that_ended_first) {
    pid_t child = fork();
    if (!child) {
        shd_output output = {.log_dir = logs};
        shd_launch_report report = run(&output, 3,
                                       "echo $$ >$DIR/pid$RANK; while [ ! -e $DIR/go$RANK ]; do sleep 0.02; done;"
                                       "[ $RANK = 0 ] && kill -9 $$; exit $((5 + RANK))");
        shd_output_fini(&output);
        _exit(10 * report.failed_rank + report.exit_code);
    }
    for (int rank = 0; rank < 3; rank++) {
        char name[16];
        snprintf(name, sizeof name, "pid%d", rank);
        for (int i = 0; i < 2000 && !strchr(written(name), '\n'); i++) usleep(5000);
    }
    usleep(200000); /* the launcher waits now */
    kill(child, SIGSTOP);
    for (int i = 0; i < 2000 && state_of(child) != 'T'; i++) usleep(5000);
    let_end(2);
    let_end(0);
    let_end(1);
    kill(child, SIGCONT);
    int state;
    waitpid(child, &state, 0);
    cr_assert_eq(state >> 8 & 0xff, 27, "rank %d, code %d", (state >> 8) / 10, (state >> 8) % 10);
}
