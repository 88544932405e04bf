/* Who writes which dump, and that what is written is what is read. */
#include "runtime/base/clock.h"
#include "runtime/watch/dump.h"
#include "runtime/watch/stack.h"
#include "tests/watch/made_dumps.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static shd_recorder *open_as(int fd, int32_t rank) {
    shd_recorder *recorder = NULL;
    return shd_recorder_open(fd, rank, &recorder) ? NULL : recorder;
}

static void record(shd_recorder *recorder, int32_t count) {
    char first[] = "embedding", second[] = "h.0", *units[] = {first, second};
    shd_recorder_name_units(recorder, units, 2);
    shd_recorder_name_kind(recorder, SHD_RECORD_INSTRUCTION, "REDUCE");
    shd_recorder_enter(recorder, SHD_ACTIVITY_STEP, 41);
    for (int32_t i = 0; i < count; i++) {
        const shd_record made = {.queued_ns = 1000 + i,
                                 .bytes = 64 * i,
                                 .step = 41,
                                 .collective = i,
                                 .unit = i % 3 - 1,
                                 .kind = SHD_RECORD_INSTRUCTION};
        int64_t number = shd_recorder_add(recorder, &made);
        shd_recorder_start(recorder, number, 2000 + i);
        if (i < count - 1) shd_recorder_end(recorder, number, 3000 + i);
    }
}

Test(dump, what_is_read_is_what_was_recorded) {
    int fd;
    const char *folder = dumps_folder();
    char dir[128];
    shd_dump_path(folder, 2, dir, sizeof dir);
    cr_assert_eq(shd_recorder_file(1, &fd), SHERD_OK);
    shd_recorder *recorder = open_as(fd, 0);
    record(recorder, 5000);
    shd_recorder_alarm(recorder, "rank 0 waited 10 s");
    cr_assert_eq(shd_dump_write(recorder, 0, 0, dir), SHERD_OK);
    shd_dumps *dumps;
    cr_assert_eq(shd_dumps_load(dir, &dumps), SHERD_OK, "%s", sherd_last_error());
    cr_assert(dumps->world_size == 1 && dumps->there == 1);
    const shd_rank_dump *rank = &dumps->ranks[0];
    cr_assert(rank->pid == getpid() && rank->written_by == 0 && rank->alarm_rank == 0 && rank->step == 41);
    cr_assert_str_eq(rank->alarm, "rank 0 waited 10 s");
    cr_assert_str_eq(rank->where_kind, "work");
    cr_assert_str_eq(rank->where, "in REDUCE embedding of step 42");
    cr_assert_str_eq(rank->activity, "in a step");
    cr_assert_eq(rank->event_count, SHD_RECORDER_EVENTS);
    for (int64_t e = 0; e < rank->event_count; e++) {
        static const char *const units[] = {"", "embedding", "h.0"};
        const shd_dump_event *event = &rank->events[e];
        int64_t i = 5000 - SHD_RECORDER_EVENTS + e;
        cr_assert(event->bytes == 64 * i && event->collective == i && event->step == 41 && event->queue == 0);
        cr_assert(event->queued_ns == 1000 + i && event->started_ns == 2000 + i);
        cr_assert_eq(event->ended_ns, i < 4999 ? 3000 + i : 0);
        cr_assert_str_eq(event->kind, "REDUCE");
        cr_assert_str_eq(event->unit, units[i % 3]);
    }
    shd_dumps_destroy(dumps);
    shd_recorder_close(recorder);
    close(fd);
}

Test(dump, nothing_is_written_without_an_alarm_or_of_a_rank_that_never_came) {
    int fd;
    bool dumped = true;
    const char *folder = dumps_folder();
    char dir[128];
    shd_dump_path(folder, 0, dir, sizeof dir);
    cr_assert_eq(shd_recorder_file(2, &fd), SHERD_OK);
    shd_recorder *recorder = open_as(fd, 0);
    cr_assert_eq(shd_dump_after_failure(recorder, 0, dir, &dumped), SHERD_OK);
    cr_assert(!dumped && access(dir, F_OK));
    shd_recorder_alarm(recorder, "found");
    double start_ms = shd_clock_ms();
    cr_assert_eq(shd_dump_after_failure(recorder, 0, dir, &dumped), SHERD_OK);
    cr_assert(dumped && shd_clock_ms() - start_ms < 800, "nobody waits for a rank that has not come");
    int32_t count = 0;
    cr_assert_eq(shd_dump_missing(recorder, dir, &count), SHERD_OK);
    cr_assert_eq(count, 1);
    char *text = dumps_read(dir, "rank-00000.json");
    cr_assert(text && strstr(text, "\"written_by\":0"));
    free(text);
    cr_assert_eq(shd_dump_write(NULL, 0, 0, dir), SHERD_OK);
    shd_recorder_close(recorder);
    close(fd);
}

/* A child as rank `rank`, which sleeps; or, given a folder, dumps when the alarm is raised. Returns when it is there. */
static pid_t start_rank(int fd, int32_t rank, const char *dir) {
    int ready[2];
    if (pipe(ready)) return -1;
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        shd_recorder *recorder = open_as(fd, rank);
        record(recorder, 3 + rank);
        if (write(ready[1], "", 1) != 1) _exit(1);
        while (!dir) pause();
        while (shd_recorder_alarmed(recorder, NULL) < 0) usleep(2000);
        _exit(shd_dump_after_failure(recorder, rank, dir, NULL) != SHERD_OK);
    }
    char byte;
    close(ready[1]);
    if (read(ready[0], &byte, 1) != 1) pid = -1;
    close(ready[0]);
    return pid;
}

/* Rank 0 finds; 1 writes its own, 2 is stopped, 3 dead, 4 hangs. */
Test(dump, the_finder_writes_for_ranks_that_cannot, .timeout = 60) {
    int fd;
    const char *folder = dumps_folder();
    char dir[128];
    shd_dump_path(folder, 0, dir, sizeof dir);
    cr_assert_eq(shd_recorder_file(5, &fd), SHERD_OK);
    shd_recorder *recorder = open_as(fd, 0);
    pid_t pids[5];
    for (int32_t r = 1; r < 5; r++) cr_assert_gt(pids[r] = start_rank(fd, r, r == 1 ? dir : NULL), 0);
    kill(pids[2], SIGSTOP);
    waitpid(pids[2], NULL, WUNTRACED);
    kill(pids[3], SIGKILL);
    waitpid(pids[3], NULL, 0);
    shd_recorder_alarm(recorder, "found");
    cr_assert_eq(shd_dump_after_failure(recorder, 0, dir, NULL), SHERD_OK, "%s", sherd_last_error());
    shd_dumps *dumps;
    cr_assert_eq(shd_dumps_load(dir, &dumps), SHERD_OK, "%s", sherd_last_error());
    static const struct {
        int32_t by;
        const char *life;
    } expected[] = {{0, "runs"}, {1, "runs"}, {0, "stopped"}, {0, "dead"}, {0, "sleeps"}};
    cr_assert_eq(dumps->there, 5);
    for (int32_t r = 0; r < 5; r++) {
        cr_assert_eq(dumps->ranks[r].written_by, expected[r].by, "rank %d by %d", r, dumps->ranks[r].written_by);
        cr_assert_str_eq(dumps->ranks[r].life, expected[r].life, "rank %d %s", r, dumps->ranks[r].life);
        if (r > 0) cr_assert_eq(dumps->ranks[r].event_count, 3 + r);
    }
    shd_dumps_destroy(dumps);
    /* The first stands. */
    char *before = dumps_read(dir, "rank-00002.json"), *after;
    kill(pids[2], SIGKILL);
    waitpid(pids[2], NULL, 0);
    cr_assert_eq(shd_dump_write(recorder, 2, SHD_DUMP_LAUNCHER, dir), SHERD_OK);
    after = dumps_read(dir, "rank-00002.json");
    cr_assert(before && after && !strcmp(before, after));
    free(before);
    free(after);
    kill(pids[4], SIGKILL);
    waitpid(pids[4], NULL, 0);
    waitpid(pids[1], NULL, 0);
    shd_recorder_close(recorder);
    close(fd);
}

/* Whoever ended before the finder's dump is in place would have the launcher end the finder. */
Test(dump, a_rank_waits_for_a_finder_that_is_late, .timeout = 60) {
    enum { LATE_MS = 2000, END_MS = 3000, SLACK_MS = 100 };
    int fd, status;
    const char *folder = dumps_folder();
    char dir[128];
    shd_dump_path(folder, 0, dir, sizeof dir);
    cr_assert_eq(shd_recorder_file(2, &fd), SHERD_OK);
    shd_recorder *recorder = open_as(fd, 0);
    pid_t pid = start_rank(fd, 1, dir);
    cr_assert_gt(pid, 0);
    double start_ms = shd_clock_ms();
    shd_recorder_alarm(recorder, "found");
    usleep(LATE_MS * 1000);
    bool waits = waitpid(pid, &status, WNOHANG) == 0;
    cr_assert(waits || shd_clock_ms() - start_ms > END_MS - SLACK_MS, "rank 1 has ended too early");
    cr_assert_eq(shd_dump_write(recorder, 0, 0, dir), SHERD_OK, "%s", sherd_last_error());
    if (waits) waitpid(pid, &status, 0);
    cr_assert_eq(status, 0);
    shd_recorder_close(recorder);
    close(fd);
}

static shd_recorder *asked;

static void answer(int signal, siginfo_t *info, void *context) {
    (void)signal;
    (void)info;
    int cause = errno;
    shd_stack stack;
    char text[SHD_RECORDER_STACK_BYTES];
    shd_stack_take_at(context, &stack);
    shd_stack_join(&stack, text, sizeof text);
    shd_recorder_put_stack(asked, text);
    errno = cause;
}

__attribute__((noinline)) static void hang_here(int ready) {
    if (write(ready, "", 1) != 1) _exit(1);
    for (;;) pause();
}

/* In builds without libunwind the answer is empty, and there is none. */
Test(dump, a_rank_that_hangs_tells_its_stack_when_it_is_asked, .timeout = 60) {
    int fd, ready[2];
    char byte, text[SHD_RECORDER_STACK_BYTES];
    cr_assert_eq(shd_recorder_file(2, &fd), SHERD_OK);
    cr_assert_eq(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        asked = open_as(fd, 1);
        const struct sigaction action = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO | SA_RESTART};
        sigaction(SIGRTMIN + 3, &action, NULL);
        shd_recorder_offer_stack(asked, SIGRTMIN + 3);
        hang_here(ready[1]);
    }
    cr_assert_eq(read(ready[0], &byte, 1), 1);
    shd_recorder *recorder = open_as(fd, 0);
    shd_stack own;
    shd_stack_take(&own);
    shd_stack_ask(recorder, 0, 50); /* offers nothing */
    cr_assert_not(shd_recorder_stack(recorder, 0, text));
    kill(pid, SIGSTOP);
    waitpid(pid, NULL, WUNTRACED);
    shd_stack_ask(recorder, 1, 50); /* cannot answer */
    cr_assert_not(shd_recorder_stack(recorder, 1, text));
    kill(pid, SIGCONT);
    waitpid(pid, NULL, WCONTINUED);
    shd_stack_ask(recorder, 1, 3000);
    bool told = shd_recorder_stack(recorder, 1, text);
    cr_assert_eq(told, own.count > 0);
    if (told) cr_assert(strstr(text, "hang_here+0x") && strchr(text, '\n'), "%s", text);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    shd_recorder_close(recorder);
    close(fd);
}

Test(dump, the_launcher_writes_what_is_missing_when_all_are_dead) {
    int fd;
    const char *folder = dumps_folder();
    char dir[128];
    shd_dump_path(folder, 1, dir, sizeof dir);
    cr_assert_eq(shd_recorder_file(3, &fd), SHERD_OK);
    for (int32_t r = 0; r < 3; r++) {
        pid_t pid = start_rank(fd, r, NULL);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    shd_recorder *reader = open_as(fd, -1);
    int32_t count = 0;
    cr_assert_eq(shd_dump_missing(reader, dir, &count), SHERD_OK);
    cr_assert_eq(count, 3);
    shd_dumps *dumps;
    cr_assert_eq(shd_dumps_load(dir, &dumps), SHERD_OK);
    for (int32_t r = 0; r < 3; r++) cr_assert(dumps->ranks[r].written_by == -1 && dumps->ranks[r].event_count == 3 + r);
    shd_dumps_destroy(dumps);
    char where[128];
    shd_dump_print_where(reader, 1, where, sizeof where);
    cr_assert_str_eq(where, "in REDUCE of step 42");
    shd_recorder_close(reader);
    close(fd);
}

Test(dump, dumps_of_an_earlier_run_are_moved_aside) {
    const char *folder = dumps_folder();
    char path[128];
    cr_assert_eq(shd_dump_settle(folder), SHERD_OK, "nothing is there");
    for (int run = 1; run <= 3; run++) {
        snprintf(path, sizeof path, "mkdir -p %s/dumps/attempt_0 && echo %d > %s/dumps/attempt_0/mark", folder, run,
                 folder);
        cr_assert_eq(system(path), 0);
        cr_assert_eq(shd_dump_settle(folder), SHERD_OK);
        snprintf(path, sizeof path, "dumps.%d/attempt_0/mark", run);
        char *text = dumps_read(folder, path);
        cr_assert(text && atoi(text) == run);
        free(text);
    }
    snprintf(path, sizeof path, "%s/dumps", folder);
    cr_assert(access(path, F_OK));
}

Test(dump, a_folder_that_cannot_be_made_is_told) {
    int fd;
    cr_assert_eq(shd_recorder_file(1, &fd), SHERD_OK);
    shd_recorder *recorder = open_as(fd, 0);
    cr_assert_eq(shd_dump_write(recorder, 0, 0, "/proc/no/such/place"), SHERD_IO);
    cr_assert(strstr(sherd_last_error(), "/proc/no"));
    shd_recorder_close(recorder);
    close(fd);
}
