/* Ranks here are shell scripts. Those that must be found again carry a mark in their environment. */
#include "runtime/launch/launch.h"

#include "runtime/base/clock.h"
#include "tests/launch/job_folder.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Launchers leave ignored what was ignored when they started, as a shell without job control, or nohup, has it. */
static void prepare(void) {
    static const int signals[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) signal(signals[i], SIG_DFL);
    make_folder();
    setenv("SHERD_TEST_MARK", folder, 1);
}

TestSuite(launch, .init = prepare, .fini = remove_folder, .timeout = 60);

static shd_launch shell(int32_t ranks, char *const argv[4]) {
    shd_launch launch = SHD_LAUNCH_INIT;
    launch.rank_count = ranks;
    launch.argv = argv;
    launch.grace_s = 0.3;
    return launch;
}
#define SHELL(script) ((char *const[4]){(char *)"sh", (char *)"-c", (char *)(script), NULL})

static void unlink_written(const char *name) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
}

/* Living processes of this test but for the calling one and its parents, which do not carry the mark in their initial
 * environment. */
static int marked_processes(void) {
    char mark[128], buffer[65536];
    int mark_length = snprintf(mark, sizeof mark, "SHERD_TEST_MARK=%s", folder), count = 0;
    DIR *proc = opendir("/proc");
    for (struct dirent *entry; (entry = readdir(proc));) {
        char path[300];
        snprintf(path, sizeof path, "/proc/%s/environ", entry->d_name);
        int fd = entry->d_name[0] >= '1' && entry->d_name[0] <= '9' ? open(path, O_RDONLY) : -1;
        ssize_t got = fd < 0 ? 0 : read(fd, buffer, sizeof buffer);
        if (fd >= 0) close(fd);
        if (got > 0 && memmem(buffer, (size_t)got, mark, (size_t)mark_length)) count++;
    }
    closedir(proc);
    return count;
}

/* 'R', 'S', 'T' (stopped), …; 0: there is no such process. */
static char process_state(int pid) {
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%*d (%*[^)]) %c", &state) != 1) state = 0;
    if (file) fclose(file);
    return state;
}

static double wait_unmarked_ms(void) {
    double start_ms = shd_clock_ms();
    while (marked_processes() && shd_clock_ms() - start_ms < 5000) usleep(2000);
    return shd_clock_ms() - start_ms;
}

/* A launcher in a process of its own, whose exit code is exit_of(report). */
static pid_t start_launcher(const shd_launch *launch, int (*exit_of)(const shd_launch_report *)) {
    pid_t pid = fork();
    if (pid) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* of a test that fails nothing is left, which would keep its output open */
    shd_launch_report report;
    _exit(shd_launch_run(launch, &report) == SHERD_OK ? exit_of(&report) : 99);
}
static int exit_of_stop(const shd_launch_report *report) {
    return report->failed_rank >= 0 ? 98 : report->stopped ? report->stop_signal : 0;
}
static int wait_exit(pid_t pid) {
    int state;
    cr_assert_eq(waitpid(pid, &state, 0), pid);
    return (state & 0x7f) == 0 ? (state >> 8) & 0xff : -(state & 0x7f);
}

Test(launch, gives_every_rank_the_variables_of_torchrun) {
    setenv("TORCHELASTIC_USE_AGENT_STORE", "1", 1);
    setenv("RANK", "77", 1);
    shd_launch launch = shell(
        3,
        SHELL(
            "echo $RANK,$LOCAL_RANK,$WORLD_SIZE,$LOCAL_WORLD_SIZE,$GROUP_RANK,$MASTER_ADDR,"
            "$TORCHELASTIC_RESTART_COUNT,$TORCHELASTIC_MAX_RESTARTS,${TORCHELASTIC_USE_AGENT_STORE-unset} >$DIR/$RANK;"
            "echo $MASTER_PORT/$TORCHELASTIC_RUN_ID >$DIR/id$RANK"));
    shd_launch_report report;
    cr_assert_eq(shd_launch_run(&launch, &report), SHERD_OK);
    cr_assert_eq(report.failed_rank, -1);
    cr_assert_str_eq(written("0"), "0,0,3,3,0,127.0.0.1,0,0,unset\n");
    cr_assert_str_eq(written("1"), "1,1,3,3,0,127.0.0.1,0,0,unset\n");
    cr_assert_str_eq(written("2"), "2,2,3,3,0,127.0.0.1,0,0,unset\n");
    char first[128];
    snprintf(first, sizeof first, "%s", written("id0"));
    cr_assert_str_eq(written("id1"), first);
    cr_assert_str_eq(written("id2"), first);
    int port = atoi(first);
    cr_assert(port > 1023 && port < 65536, "port %d", port);
    cr_assert_eq(strlen(strchr(first, '/')), 1 + 32 + 1);
    cr_assert_eq(shd_launch_run(&launch, &report), SHERD_OK);
    cr_assert_str_neq(strchr(written("id0"), '/'), strchr(first, '/'), "two jobs have the same run id");
}

Test(launch, reports_the_rank_that_failed_first_in_time) {
    shd_launch launch = shell(4, SHELL("case $RANK in 0) exit 0;; 2) sleep 0.1; exit 5;; *) sleep 30; exit 6;; esac"));
    shd_launch_report report;
    double start_ms = shd_clock_ms();
    cr_assert_eq(shd_launch_run(&launch, &report), SHERD_OK);
    cr_assert_lt(shd_clock_ms() - start_ms, 3000);
    cr_assert_eq(report.failed_rank, 2);
    cr_assert_eq(report.exit_code, 5);
    cr_assert_eq(report.signal, 0);
    cr_assert_eq(report.terminated, 2);
    cr_assert_eq(report.killed, 0);
    cr_assert_eq(marked_processes(), 0);
}

Test(launch, kills_ranks_that_do_not_end_within_the_grace) {
    shd_launch launch =
        shell(3, SHELL("trap '' TERM; [ $RANK = 1 ] && sleep 0.1 && exit 9; while :; do sleep 30; done"));
    shd_launch_report report;
    double start_ms = shd_clock_ms();
    cr_assert_eq(shd_launch_run(&launch, &report), SHERD_OK);
    cr_assert_geq(shd_clock_ms() - start_ms, 300);
    cr_assert_lt(shd_clock_ms() - start_ms, 3000);
    cr_assert_eq(report.failed_rank, 1);
    cr_assert_eq(report.exit_code, 9);
    cr_assert_eq(report.killed, 2);
    cr_assert_eq(marked_processes(), 0);
}

Test(launch, a_rank_that_blames_its_peer_is_not_the_first_to_fail) {
    shd_launch launch = shell(3, SHELL("case $RANK in 0) exit 4;; 1) sleep 0.05; exit 7;; *) sleep 30;; esac"));
    launch.peer_failed_code = 4;
    shd_launch_report report;
    cr_assert_eq(shd_launch_run(&launch, &report), SHERD_OK);
    cr_assert_eq(report.failed_rank, 1);
    cr_assert_eq(report.exit_code, 7);
    cr_assert_not(report.blames_peer);

    launch.argv = SHELL("[ $RANK = 0 ] && exit 4; sleep 30");
    cr_assert_eq(shd_launch_run(&launch, &report), SHERD_OK);
    cr_assert_eq(report.failed_rank, 0);
    cr_assert(report.blames_peer);
}

Test(launch, names_a_rank_killed_by_a_signal_twenty_times) {
    for (int i = 0; i < 20; i++) {
        shd_launch launch = shell(3, SHELL("[ $RANK = $VICTIM ] && kill -9 $$; sleep 30 & wait"));
        setenv("VICTIM", (const char *[]){"0", "1", "2"}[i % 3], 1);
        shd_launch_report report;
        cr_assert_eq(shd_launch_run(&launch, &report), SHERD_OK);
        cr_assert_eq(report.failed_rank, i % 3);
        cr_assert_eq(report.signal, SIGKILL);
        cr_assert_gt(report.failed_pid, 0);
        cr_assert_lt(report.failure_ms, 5000);
        cr_assert_eq(marked_processes(), 0);
    }
}

Test(launch, a_killed_launcher_leaves_nothing_twenty_times) {
    for (int i = 0; i < 20; i++) {
        /* What a rank has started is not tied to the launcher by the kernel, and in its group only if it stays there. */
        shd_launch launch = shell(3, SHELL("sleep 300 & setsid sleep 300 & setsid sh -c 'setsid sleep 300 & wait' &"
                                           "echo up >$DIR/up$RANK$ROUND; wait"));
        char round[8], name[32];
        snprintf(round, sizeof round, "-%d", i);
        setenv("ROUND", round, 1);
        pid_t launcher = start_launcher(&launch, exit_of_stop);
        for (int rank = 0; rank < 3; rank++) {
            snprintf(name, sizeof name, "up%d%s", rank, round);
            wait_written(name);
        }
        int count = 0; /* they come one by one, and one that is at its exec is not seen for a moment */
        for (int wait = 0; wait < 1000 && (count = marked_processes()) != 15; wait++) usleep(2000);
        cr_assert_eq(count, 15);
        kill(launcher, SIGKILL);
        cr_assert_eq(wait_exit(launcher), -SIGKILL);
        cr_assert_lt(wait_unmarked_ms(), 5000);
        cr_assert_eq(marked_processes(), 0);
    }
}

Test(launch, what_ranks_leave_behind_ends_with_the_job) {
    shd_launch launch =
        shell(2, SHELL("sleep 300 & setsid sleep 300 & setsid sh -c 'sleep 300 & sleep 300' & sleep 0.1; exit 0"));
    shd_launch_report report;
    cr_assert_eq(shd_launch_run(&launch, &report), SHERD_OK);
    cr_assert_eq(report.failed_rank, -1);
    cr_assert_eq(marked_processes(), 0);
}

Test(launch, passes_signals_on_and_kills_at_the_second_stop) {
    shd_launch launch = shell(2, SHELL("trap 'echo usr1 >$DIR/usr1-$RANK' USR1; trap 'echo term >$DIR/term-$RANK' TERM;"
                                       "echo up >$DIR/up$RANK; while :; do sleep 0.02; done"));
    pid_t launcher = start_launcher(&launch, exit_of_stop);
    wait_written("up0");
    wait_written("up1");
    kill(launcher, SIGUSR1);
    wait_written("usr1-0");
    wait_written("usr1-1");
    kill(launcher, SIGTERM);
    wait_written("term-0");
    wait_written("term-1");
    cr_assert_eq(waitpid(launcher, NULL, WNOHANG), 0, "the first TERM must not end ranks that handle it");
    kill(launcher, SIGTERM);
    cr_assert_eq(wait_exit(launcher), SIGTERM);
    cr_assert_eq(marked_processes(), 0);
}

Test(launch, passes_one_signal_on_to_rank_0_alone_when_it_is_to) {
    shd_launch launch = shell(2, SHELL("trap 'echo usr1 >$DIR/usr1-$RANK' USR1; trap 'echo usr2 >$DIR/usr2-$RANK' USR2;"
                                       "echo up >$DIR/up$RANK; while :; do sleep 0.02; done"));
    launch.one_rank_signal = SIGUSR1;
    pid_t launcher = start_launcher(&launch, exit_of_stop);
    wait_written("up0");
    wait_written("up1");
    kill(launcher, SIGUSR1);
    wait_written("usr1-0");
    kill(launcher, SIGUSR2); /* comes after the other one */
    wait_written("usr2-0");
    wait_written("usr2-1");
    char path[96];
    snprintf(path, sizeof path, "%s/usr1-1", folder);
    cr_assert_neq(access(path, F_OK), 0);
    kill(launcher, SIGTERM);
    cr_assert_eq(wait_exit(launcher), SIGTERM);
}

/* Ranks take no notice of TERM until the file "free" is there: until then they must not be killed. */
static bool holds_until_free(void *user, int signal) {
    (void)user, (void)signal;
    char path[96];
    snprintf(path, sizeof path, "%s/free", folder);
    return access(path, F_OK) != 0;
}

static pid_t start_held(shd_launch *launch, int (*exit_of)(const shd_launch_report *)) {
    *launch = shell(2, SHELL("trap '' TERM; echo up >$DIR/held$RANK; while [ ! -e $DIR/end ]; do sleep 0.02; done;"
                             "exit 143"));
    launch->holds = holds_until_free;
    launch->stop_grace_s = 0.2;
    pid_t launcher = start_launcher(launch, exit_of);
    wait_written("held0");
    wait_written("held1");
    return launcher;
}

static void make(const char *name) {
    char path[96];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    fputs("x\n", file);
    fclose(file);
}

Test(launch, ranks_that_are_held_outlive_a_second_stop_and_the_grace) {
    shd_launch launch;
    pid_t launcher = start_held(&launch, exit_of_stop);
    kill(launcher, SIGTERM);
    usleep(100000);
    kill(launcher, SIGTERM);
    kill(launcher, SIGINT);
    usleep(400000);
    cr_assert_eq(waitpid(launcher, NULL, WNOHANG), 0, "killed, though held");
    make("end");
    cr_assert_eq(wait_exit(launcher), SIGTERM);
    cr_assert_eq(marked_processes(), 0);
}

Test(launch, quit_kills_ranks_that_are_held) {
    shd_launch launch;
    pid_t launcher = start_held(&launch, exit_of_stop);
    kill(launcher, SIGTERM);
    usleep(100000);
    kill(launcher, SIGQUIT);
    cr_assert_eq(wait_exit(launcher), SIGTERM);
    cr_assert_eq(marked_processes(), 0);
}

Test(launch, a_second_stop_kills_ranks_that_are_held_no_longer) {
    shd_launch launch;
    pid_t launcher = start_held(&launch, exit_of_stop);
    kill(launcher, SIGTERM);
    usleep(100000);
    make("free");
    kill(launcher, SIGTERM);
    cr_assert_eq(wait_exit(launcher), SIGTERM);
    cr_assert_eq(marked_processes(), 0);
}

/* Those that may still be ending by themselves get a moment for it, and no more. */
static int exit_of_killed(const shd_launch_report *report) { return report->overdue ? 10 * report->killed : 97; }

Test(launch, ranks_that_were_held_beyond_the_grace_get_a_moment_then) {
    shd_launch launch = shell(2, SHELL("trap '' TERM; echo up >$DIR/late$RANK; while :; do sleep 0.02; done"));
    launch.holds = holds_until_free;
    launch.stop_grace_s = 0.1;
    launch.grace_s = 0.3;
    pid_t launcher = start_launcher(&launch, exit_of_killed);
    wait_written("late0");
    wait_written("late1");
    kill(launcher, SIGTERM);
    usleep(300000); /* the grace is over, and they were held */
    make("free");
    cr_assert_eq(wait_exit(launcher), 20);
    cr_assert_eq(marked_processes(), 0);
}

static int exit_of_failure(const shd_launch_report *report) { return report->failed_rank < 0 ? 97 : report->exit_code; }

Test(launch, a_rank_that_fails_during_a_stop_does_not_hurry_those_that_save) {
    /* In python a stop is often an exception, and that is exit code 1. */
    const char *saves = "save() { [ $RANK = 1 ] && exit 7; sleep $SAVE_S; echo saved >$DIR/saved; exit 0; };"
                        "trap save INT; echo up >$DIR/save$RANK; while :; do sleep 0.02; done";
    shd_launch launch = shell(2, SHELL(saves));
    launch.grace_s = 0.1;
    setenv("SAVE_S", "0.6", 1);
    pid_t launcher = start_launcher(&launch, exit_of_failure);
    wait_written("save0");
    wait_written("save1");
    kill(launcher, SIGINT);
    cr_assert_eq(wait_exit(launcher), 7);
    cr_assert_str_eq(written("saved"), "saved\n");

    /* Not beyond the time of the stop, unless they are held. */
    launch.stop_grace_s = 1;
    setenv("SAVE_S", "3", 1);
    for (int held = 0; held < 2; held++) {
        const char *const names[] = {"save0", "save1", "saved"};
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) unlink_written(names[i]);
        launch.holds = held ? holds_until_free : NULL;
        launcher = start_launcher(&launch, exit_of_failure);
        wait_written("save0");
        wait_written("save1");
        kill(launcher, SIGINT);
        cr_assert_eq(wait_exit(launcher), 7);
        cr_assert_str_eq(written("saved"), held ? "saved\n" : "");
    }
}

/* Five at once, of ranks that take least_ms to end by `script` and write "up" before. */
static void stop_repeatedly(int signal, char *const script[4], double repeat_s, double least_ms) {
    shd_launch launch = shell(1, script);
    launch.repeat_s = repeat_s;
    pid_t launcher = start_launcher(&launch, exit_of_stop);
    wait_written("up");
    double start_ms = shd_clock_ms();
    for (int i = 0; i < 5; i++) {
        kill(launcher, signal);
        usleep(5000);
    }
    cr_assert_eq(wait_exit(launcher), signal);
    cr_assert_geq(shd_clock_ms() - start_ms, least_ms, "killed at the repetition");
}

Test(launch, a_stop_that_comes_twice_at_once_is_one) {
    stop_repeatedly(SIGTERM, SHELL("trap 'sleep 0.3; exit 143' TERM; echo up >$DIR/up; while :; do sleep 0.02; done"),
                    0.2, 290);
}

Test(launch, a_quit_that_comes_twice_at_once_is_one) {
    stop_repeatedly(SIGQUIT, SHELL("trap 'sleep 1; exit 131' QUIT; echo up >$DIR/up; while :; do sleep 0.02; done"),
                    0.5, 990);
}

Test(launch, ranks_that_stop_when_told_have_not_failed) {
    /* One dies of the signal, one says 128 + 15, one ends in peace. */
    shd_launch launch = shell(3, SHELL("case $RANK in 1) trap 'exit 143' TERM;; 2) trap 'exit 0' TERM;; esac;"
                                       "echo up >$DIR/up$RANK; while :; do sleep 0.02; done"));
    pid_t launcher = start_launcher(&launch, exit_of_stop);
    wait_written("up0");
    wait_written("up1");
    wait_written("up2");
    kill(launcher, SIGTERM);
    cr_assert_eq(wait_exit(launcher), SIGTERM);

    /* Told with INT; one says 128 + 15, as a rank that stops with its peers before it is told. */
    launch = shell(2, SHELL("trap 'exit 143' INT; echo up >$DIR/again$RANK; while :; do sleep 0.02; done"));
    launcher = start_launcher(&launch, exit_of_stop);
    wait_written("again0");
    wait_written("again1");
    kill(launcher, SIGINT);
    cr_assert_eq(wait_exit(launcher), SIGINT);
}

Test(launch, a_rank_that_loses_a_peer_to_the_stop_has_not_failed) {
    /* Rank 1 ends first, of the signal; rank 0 says that it has lost a peer. */
    shd_launch launch = shell(2, SHELL("[ $RANK = 0 ] && trap 'sleep 0.1; exit 4' TERM;"
                                       "echo up >$DIR/up$RANK; while :; do sleep 0.02; done"));
    launch.peer_failed_code = 4;
    pid_t launcher = start_launcher(&launch, exit_of_stop);
    wait_written("up0");
    wait_written("up1");
    kill(launcher, SIGTERM);
    cr_assert_eq(wait_exit(launcher), SIGTERM);
}

Test(launch, a_rank_that_outlives_a_stop_by_far_is_killed) {
    shd_launch launch =
        shell(2, SHELL("[ $RANK = 1 ] && trap '' TERM; echo up >$DIR/up$RANK; while :; do sleep 0.02; done"));
    launch.stop_grace_s = 0.2;
    pid_t launcher = start_launcher(&launch, exit_of_stop);
    wait_written("up0");
    wait_written("up1");
    kill(launcher, SIGINT);
    usleep(20000);
    kill(launcher,
         SIGUSR2); /* ends both that handle nothing; the second ignores INT in the background, as shells have it */
    cr_assert_neq(wait_exit(launcher), 0);
    cr_assert_eq(marked_processes(), 0);
}

static int exit_of_overdue(const shd_launch_report *report) {
    return !report->stopped || !report->overdue ? 97 : 10 * report->killed + report->killed_rank;
}

Test(launch, ranks_that_do_not_heed_a_stop_are_killed_after_its_grace) {
    /* Rank 0 ends; nobody has ended when the grace begins. */
    shd_launch launch = shell(3, SHELL("[ $RANK = 0 ] && trap 'sleep 0.1; exit 0' TERM || trap '' TERM;"
                                       "echo up >$DIR/up$RANK; while :; do sleep 0.02; done"));
    launch.stop_grace_s = 0.4;
    pid_t launcher = start_launcher(&launch, exit_of_overdue);
    for (int rank = 0; rank < 3; rank++) wait_written((const char *[]){"up0", "up1", "up2"}[rank]);
    double start_ms = shd_clock_ms();
    kill(launcher, SIGTERM);
    cr_assert_eq(wait_exit(launcher), 21, "two were killed, the first of them rank 1");
    cr_assert_geq(shd_clock_ms() - start_ms, 400);
    cr_assert_eq(marked_processes(), 0);
}

/* Stopped, or a shell that waits (D) for the child it has just made by vfork, which is stopped before its exec. */
static bool stands_still(int pid) {
    char state = process_state(pid);
    return state == 'T' || state == 'D';
}

Test(launch, a_terminal_stop_stops_all_and_a_continue_lets_all_go_on) {
    shd_launch launch = shell(2, SHELL("echo $$ >$DIR/pid$RANK; while [ ! -e $DIR/end ]; do sleep 0.02; done"));
    launch.stop_grace_s = 0.2;
    pid_t launcher = start_launcher(&launch, exit_of_stop);
    setpgid(launcher, launcher); /* a group whose parent can continue it; others are not stopped */
    wait_written("pid0");
    int pids[2] = {atoi(written("pid0")), 0};
    wait_written("pid1");
    pids[1] = atoi(written("pid1"));
    int state;
    kill(launcher, SIGTSTP);
    cr_assert_eq(waitpid(launcher, &state, WUNTRACED), launcher);
    cr_assert(WIFSTOPPED(state));
    for (int rank = 0; rank < 2; rank++) {
        for (int i = 0; i < 1000 && !stands_still(pids[rank]); i++) usleep(2000);
        cr_assert(stands_still(pids[rank]), "rank %d runs", rank);
    }
    kill(launcher, SIGCONT);
    for (int rank = 0; rank < 2; rank++) {
        for (int i = 0; i < 1000 && process_state(pids[rank]) == 'T'; i++) usleep(2000);
        cr_assert_neq(process_state(pids[rank]), 'T', "rank %d stands still", rank);
    }
    char path[128];
    snprintf(path, sizeof path, "%s/end", folder);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    cr_assert_eq(wait_exit(launcher), 0);
}

Test(launch, keeps_ignoring_what_it_was_started_to_ignore) {
    shd_launch launch = shell(1, SHELL("echo up >$DIR/up0; sleep 0.5"));
    pid_t launcher = fork();
    if (launcher == 0) {
        signal(SIGHUP, SIG_IGN);
        shd_launch_report report;
        _exit(shd_launch_run(&launch, &report) == SHERD_OK ? exit_of_stop(&report) : 99);
    }
    wait_written("up0");
    kill(launcher, SIGHUP);
    cr_assert_eq(wait_exit(launcher), 0);
}

Test(launch, standard_input_goes_to_rank_0) {
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    cr_assert_eq(write(ends[1], "hello\n", 6), 6);
    close(ends[1]);
    dup2(ends[0], 0);
    shd_launch launch = shell(2, SHELL("cat >$DIR/in$RANK; echo end >>$DIR/in$RANK"));
    shd_launch_report report;
    cr_assert_eq(shd_launch_run(&launch, &report), SHERD_OK);
    cr_assert_str_eq(written("in0"), "hello\nend\n");
    cr_assert_str_eq(written("in1"), "end\n");
}

Test(launch, a_program_that_cannot_be_executed_is_named) {
    shd_launch launch = shell(2, (char *const[4]){(char *)"no-such-program", NULL});
    shd_launch_report report;
    cr_assert_eq(shd_launch_run(&launch, &report), SHERD_UNSUPPORTED);
    cr_assert_eq(report.exit_code, 127);
    cr_assert(strstr(sherd_last_error(), "no-such-program"));
    launch.argv = (char *const[4]){(char *)"/etc/passwd", NULL};
    cr_assert_eq(shd_launch_run(&launch, &report), SHERD_UNSUPPORTED);
    cr_assert_eq(report.exit_code, 126);
}

Test(launch, refuses_impossible_numbers_of_ranks) {
    shd_launch_report report;
    shd_launch launch = shell(0, SHELL("exit 0"));
    cr_assert_eq(shd_launch_run(&launch, &report), SHERD_ARGUMENT);
    launch.rank_count = SHD_LAUNCH_MAX_RANKS + 1;
    cr_assert_eq(shd_launch_run(&launch, &report), SHERD_ARGUMENT);
    launch = shell(1, (char *const[4]){NULL});
    cr_assert_eq(shd_launch_run(&launch, &report), SHERD_ARGUMENT);
}

Test(launch, leaves_the_process_as_it_was) {
    sigset_t before, after;
    sigemptyset(&before);
    sigaddset(&before, SIGUSR2);
    sigprocmask(SIG_SETMASK, &before, NULL);
    signal(SIGCHLD, SIG_IGN);
    pid_t other = fork(); /* a child that is none of the job's */
    if (other == 0) {
        pause();
        _exit(0);
    }
    shd_launch launch = shell(1, SHELL("exit 3"));
    shd_launch_report report;
    cr_assert_eq(shd_launch_run(&launch, &report), SHERD_OK);
    cr_assert_eq(report.exit_code, 3);
    sigprocmask(SIG_SETMASK, NULL, &after);
    for (int signal = 1; signal < 32; signal++)
        cr_assert_eq(sigismember(&after, signal), signal == SIGUSR2, "signal %d", signal);
    struct sigaction action;
    sigaction(SIGCHLD, NULL, &action);
    cr_assert_eq(action.sa_handler, SIG_IGN);
    int subreaper = 1;
    prctl(PR_GET_CHILD_SUBREAPER, &subreaper);
    cr_assert_eq(subreaper, 0);
    cr_assert_eq(kill(other, 0), 0);
    kill(other, SIGKILL);
}
