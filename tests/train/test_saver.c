/* When a run saves, and what becomes of it when it cannot. */
#include "tests/io/make_job.h"
#include "tests/train/run_job.h"

#include <criterion/criterion.h>
#include <glob.h>
#include <jansson.h>
#include <sherd/log.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void prepare(void) {
    enter_fresh_folder();
    make_tokens("tokens.u16", 2000, 1);
    make_tokens("val.u16", 700, 2);
}

TestSuite(saver, .init = prepare, .fini = leave_fresh_folder, .timeout = 120);

#define SET(...) ((const char *const[]){__VA_ARGS__, NULL})

static char logged[1 << 16];
static void keep_line(void *user, sherd_log_level level, const char *line) {
    static const char *const kinds[] = {"error: ", "warning: ", "", "", ""};
    (void)user;
    snprintf(logged + strlen(logged), sizeof logged - strlen(logged), "%s%s\n", kinds[level], line);
}

static void expect_ok(const job_result *result) {
    for (int r = 0; r < MAX_RANKS; r++)
        cr_assert_eq(result->status[r], SHERD_OK, "rank %d: status %d; %s", r, result->status[r], result->cause);
}

static void expect_saved(const job_result *result, int count, const int64_t *steps) {
    cr_assert_eq(result->save_count, count, "%d saves", (int)result->save_count);
    for (int i = 0; i < count; i++)
        cr_assert_eq(result->save_steps[i], steps[i], "save %d is of step %d", i, (int)result->save_steps[i]);
}

/* --- when --------------------------------------------------------------------------------------------------------- */

Test(saver, saves_by_steps_and_at_the_end) {
    static job_result result;
    static const char *const asyncs[] = {"checkpoint.async=false", "checkpoint.async=true"};
    for (int i = 0; i < 2; i++) {
        char dir[32];
        snprintf(dir, sizeof dir, "checkpoint.dir=ckpt%d", i);
        run_job(small_job, SET("checkpoint.every=5", "checkpoint.keep=0", "run.ranks=2", asyncs[i], dir), &result);
        expect_ok(&result);
        expect_saved(&result, 3, (int64_t[]){5, 10, 12});
        cr_assert_eq(result.summary.saves.saved_count, 3);
    }
    run_job(small_job, SET("checkpoint.dir=last"), &result);
    expect_saved(&result, 1, (int64_t[]){12});
    run_job(small_job, SET("checkpoint.dir=end", "checkpoint.every=6"), &result);
    expect_saved(&result, 2, (int64_t[]){6, 12});
}

Test(saver, saves_when_any_rank_was_asked_and_goes_on) {
    static job_result result;
    static const char *const ranks[] = {"run.ranks=1", "run.ranks=2"};
    for (int i = 0; i < 2; i++) {
        char dir[32];
        snprintf(dir, sizeof dir, "checkpoint.dir=ckpt%d", i);
        run_job_asking(small_job, SET(ranks[i], dir), 3, &result);
        expect_ok(&result);
        expect_saved(&result, 2, (int64_t[]){4, 12});
        cr_assert_eq(result.step_count, 12);
    }
}

static bool was_saved(const job_result *result, int64_t step) {
    for (int i = 0; i < result->save_count; i++)
        if (result->save_steps[i] == step) return true;
    return false;
}

/* How far a save is at the next boundary is chance; that each step is either saved or said to be left out is not. */
Test(saver, waits_for_the_save_before_or_leaves_one_out_and_says_so) {
    static job_result result;
    static const char *const ways[] = {"checkpoint.if_busy=wait", "checkpoint.if_busy=skip"};
    for (int way = 0; way < 2; way++) {
        char dir[32];
        snprintf(dir, sizeof dir, "checkpoint.dir=busy%d", way);
        logged[0] = 0;
        sherd_log_set(keep_line, NULL, SHERD_LOG_INFO);
        run_job(small_job, SET("checkpoint.every=1", "checkpoint.keep=0", "run.ranks=2", ways[way], dir), &result);
        expect_ok(&result);
        for (int64_t s = 1; s <= 12; s++) {
            char left_out[64];
            snprintf(left_out, sizeof left_out, "warning: step %d is not saved: step ", (int)s);
            bool said = strstr(logged, left_out) != NULL;
            cr_assert_neq(was_saved(&result, s), said, "%s, step %d", ways[way], (int)s);
            cr_assert(!said || (way == 1 && s < 12), "%s, step %d", ways[way], (int)s);
        }
    }
}

/* Of time that has always passed: after every step. */
Test(saver, saves_by_the_clock_of_rank_0) {
    static job_result result;
    run_job(small_job, SET("checkpoint.every_minutes=1e-9", "checkpoint.keep=0", "run.ranks=2"), &result);
    expect_ok(&result);
    cr_assert_geq(result.save_count, 10);
    run_job(small_job, SET("checkpoint.every_minutes=60", "checkpoint.dir=slow"), &result);
    expect_saved(&result, 1, (int64_t[]){12});
}

/* --- what saving costs is told ------------------------------------------------------------------------------------ */

Test(saver, has_written_the_row_of_a_step_before_its_checkpoint_is_complete) {
    static job_result result;
    size_t length;
    run_job_stopping(small_job, SET("checkpoint.every=3"), 0, 5, &result);
    expect_ok(&result);
    expect_saved(&result, 2, (int64_t[]){3, 6});
    char *rows = read_file("log/metrics.jsonl", &length), *line = rows;
    for (int s = 0; s < 6; s++, line = strchr(line, '\n') + 1) {
        json_t *row = json_loads(line, JSON_DISABLE_EOF_CHECK, NULL);
        cr_assert_eq(json_integer_value(json_object_get(row, "step")), s);
        cr_assert_geq(json_number_value(json_object_get(row, "save_wait_ms")), 0);
        json_decref(row);
    }
    free(rows);
}

/* --- failures ----------------------------------------------------------------------------------------------------- */

#define NOWHERE "checkpoint.dir=file/ckpt", "checkpoint.every=2", "run.ranks=2"

static void run_nowhere(const char *on_error, job_result *out) {
    write_text("file", "");
    logged[0] = 0;
    sherd_log_set(keep_line, NULL, SHERD_LOG_INFO);
    run_job(small_job, SET(NOWHERE, on_error), out);
    cr_assert_eq(out->save_count, 0);
}

Test(saver, stops_after_the_third_failure_in_a_row) {
    static job_result result;
    run_nowhere("checkpoint.on_error=stop", &result);
    for (int r = 0; r < 2; r++) cr_assert_eq(result.status[r], SHERD_IO, "rank %d: %d", r, result.status[r]);
    cr_assert(result.step_count >= 6 && result.step_count <= 8, "%d steps", (int)result.step_count);
    cr_assert_not_null(strstr(result.cause, "step 6 could not be saved: "), "%s", result.cause);
    cr_assert_not_null(
        strstr(result.cause, "; that was 3 times in a row, and the run ends: checkpoint.on_error is stop"));
    cr_assert_not_null(strstr(logged, "warning: step 2 could not be saved: "), "%s", logged);
    cr_assert_not_null(strstr(logged, "warning: step 4 could not be saved: "), "%s", logged);
}

Test(saver, ends_at_the_first_failure_when_it_is_to) {
    static job_result result;
    run_nowhere("checkpoint.on_error=fail", &result);
    for (int r = 0; r < 2; r++) cr_assert_eq(result.status[r], SHERD_IO);
    cr_assert(result.step_count >= 2 && result.step_count <= 4, "%d steps", (int)result.step_count);
    cr_assert_not_null(strstr(result.cause, "step 2 could not be saved: "), "%s", result.cause);
}

Test(saver, goes_on_when_it_is_to_but_never_ends_well) {
    static job_result result;
    run_nowhere("checkpoint.on_error=continue", &result);
    for (int r = 0; r < 2; r++) cr_assert_eq(result.status[r], SHERD_IO);
    cr_assert_eq(result.step_count, 12);
    cr_assert_not_null(strstr(result.cause, "step 12 could not be saved: "), "%s", result.cause);
}

/* The folder comes to be writable: the run is whole, and still did not go well. */
static void make_room(void *user, sherd_log_level level, const char *line) {
    keep_line(user, level, line);
    if (strstr(line, "step 4 could not be saved: ")) unlink("file");
}

/* Takes the first file of rank 0 away, `user` microseconds after it was seen to be whole; or none, once there is "over". */
static void take_file_away(long wait_us) {
    const struct timespec pause = {.tv_nsec = wait_us * 1000};
    bool taken = false;
    while (!taken && access("over", F_OK) != 0) {
        glob_t found = {0};
        struct stat about;
        taken = glob("vanishing/step-*.partial-*/rank-00000.bin", GLOB_NOSORT, NULL, &found) == 0 &&
                stat(found.gl_pathv[0], &about) == 0 && about.st_size > 0;
        if (taken) {
            nanosleep(&pause, NULL);
            unlink(found.gl_pathv[0]);
        }
        globfree(&found);
    }
}

/* Whether it vanishes while it is written, as it mostly does, or between that and the commit, of which this is about: tried
 * until it has, as who takes it away is a process of its own. */
Test(saver, a_file_that_vanishes_is_a_failed_save_and_no_bad_data) {
    static job_result result;
    bool behind = false;
    for (long i = 0; !behind && i < 400; i++) {
        unlink("over");
        pid_t thief = fork(); /* no thread: ranks are forked after this */
        if (thief == 0) {
            take_file_away(i * 100 % 20000);
            _exit(0);
        }
        run_job(small_job,
                SET("checkpoint.every=1", "checkpoint.on_error=fail", "checkpoint.dir=vanishing", "train.steps=5",
                    "checkpoint.resume=never", "train.global_batch=96", "run.ranks=2"),
                &result);
        write_text("over", "");
        cr_assert_eq(waitpid(thief, NULL, 0), thief);
        for (int r = 0; r < 2; r++)
            cr_assert(result.status[r] == SHERD_OK || result.status[r] == SHERD_IO, "status %d: %s", result.status[r],
                      result.cause);
        behind = strstr(result.cause, "has not written") != NULL;
    }
    cr_assert(behind, "never");
}

/* As soon as the first checkpoint is complete: perhaps before rank 0 has looked at its folder again. */
static void move_folder_away(void) {
    while (access("over", F_OK) != 0 && access("moving/step-00000001", F_OK) != 0) {}
    rename("moving", "moved");
}

Test(saver, says_that_the_folder_is_another_one_however_soon_the_first_went) {
    static job_result result;
    sherd_log_set(keep_line, NULL, SHERD_LOG_WARN);
    for (int i = 0; i < 20; i++) {
        system("rm -rf over moving moved; mkdir moving");
        pid_t thief = fork();
        if (thief == 0) {
            move_folder_away();
            _exit(0);
        }
        logged[0] = 0;
        run_job(small_job,
                SET("checkpoint.every=1", "checkpoint.dir=moving", "train.steps=12", "checkpoint.on_error=continue",
                    "checkpoint.resume=never", i % 2 ? "run.ranks=2" : "run.ranks=1"),
                &result);
        write_text("over", "");
        cr_assert_eq(waitpid(thief, NULL, 0), thief);
        if (access("moving", F_OK) != 0 || access("moved", F_OK) != 0) continue; /* it went after the last save */
        const char *said = strstr(logged, "is another folder than it was");
        cr_assert(said && !strstr(said + 1, "is another folder than"), "run %d: %s", i, logged);
    }
}

Test(saver, does_not_end_well_after_failures_that_have_ended) {
    static job_result result;
    write_text("file", "");
    logged[0] = 0;
    sherd_log_set(make_room, NULL, SHERD_LOG_INFO);
    run_job(small_job, SET(NOWHERE, "checkpoint.keep=0"), &result);
    cr_assert_eq(result.step_count, 12);
    for (int r = 0; r < 2; r++) cr_assert_eq(result.status[r], SHERD_IO);
    cr_assert_eq(result.summary.saves.failed_count, 2);
    cr_assert_eq(result.summary.saves.saved_count, 4);
    const char *told = "2 of 6 checkpoints could not be saved; the last step's is complete; the last failure: ";
    cr_assert(strncmp(result.cause, told, strlen(told)) == 0 && strlen(result.cause) > strlen(told), "%s",
              result.cause);
}

/* The save before the last one is the failure that ends the run: the last step is saved all the same. */
static void make_room_at_the_end(void *user, sherd_log_level level, const char *line) {
    keep_line(user, level, line);
    if (strstr(line, "step 11 could not be saved: ")) unlink("file");
}

Test(saver, saves_the_last_step_whatever_became_of_the_one_before) {
    static job_result result;
    write_text("file", "");
    sherd_log_set(make_room_at_the_end, NULL, SHERD_LOG_INFO);
    run_job(small_job, SET("checkpoint.dir=file/x", "checkpoint.every=11", "checkpoint.on_error=fail"), &result);
    cr_assert_eq(result.step_count, 12);
    cr_assert_eq(result.status[0], SHERD_IO);
    cr_assert_eq(result.summary.saves.saved_count, 1, "%s", result.cause);
    const char *told = "1 of 2 checkpoints could not be saved; the last step's is complete; the last failure: ";
    cr_assert(strncmp(result.cause, told, strlen(told)) == 0 && strlen(result.cause) > strlen(told), "%s",
              result.cause);
}

/* --- other failures do not cost what was trained ------------------------------------------------------------------ */

/* A validation file that is cut while the job runs. */
static void cut_validation(void *user, sherd_log_level level, const char *line) {
    keep_line(user, level, line);
    if (strstr(line, "saved ")) cr_assert_eq(truncate("val.u16", 30), 0);
}

Test(saver, saves_when_a_validation_fails) {
    static job_result result;
    for (int ranks = 1; ranks <= 2; ranks++) {
        char dir[32], log[32];
        snprintf(dir, sizeof dir, "checkpoint.dir=ckpt%d", ranks);
        snprintf(log, sizeof log, "log.dir=log%d", ranks);
        make_tokens("val.u16", 700, 2);
        sherd_log_set(cut_validation, NULL, SHERD_LOG_INFO);
        run_job(small_job,
                SET("data.validation=val.u16", "train.evaluate_every=7", "checkpoint.every=3", dir, log,
                    ranks == 1 ? "run.ranks=1" : "run.ranks=2"),
                &result);
        for (int r = 0; r < ranks; r++)
            cr_assert(result.status[r] == SHERD_DATA || result.status[r] == SHERD_IO, "rank %d: status %d, %s", r,
                      result.status[r], result.cause);
        cr_assert_not_null(strstr(result.cause, "val.u16"), "%s", result.cause);
        expect_saved(&result, 3, (int64_t[]){3, 6, 7});
        size_t length;
        char path[64];
        snprintf(path, sizeof path, "log%d/metrics.jsonl", ranks);
        char *rows = read_file(path, &length);
        cr_assert_not_null(strstr(rows, "{\"step\":6,"), "the row of the saved step is missing: %s", rows);
        free(rows);
    }
}

/* Rows of step 0, longer and longer, until hardly anything fits behind them. */
static void fill_metrics(const char *path, int64_t bytes) {
    FILE *file = fopen(path, "a");
    cr_assert_not_null(file);
    for (int64_t left = bytes - ftell(file); left > 0; left = bytes - ftell(file)) {
        int length = left < 4000 ? (int)left : 4000;
        if (length < 40) break;
        fprintf(file, "{\"step\":0,%*s}\n", length - 12 - 8, "\"x\":0");
        fflush(file);
    }
    fclose(file);
}

Test(saver, saves_when_rows_cannot_be_written) {
    static job_result result;
    for (int ranks = 1; ranks <= 2; ranks++) {
        const char *many = ranks == 1 ? "run.ranks=1" : "run.ranks=2";
        char dir[32], log[32], path[64];
        snprintf(dir, sizeof dir, "checkpoint.dir=ckpt%d", ranks);
        snprintf(log, sizeof log, "log.dir=log%d", ranks);
        snprintf(path, sizeof path, "log%d/metrics.jsonl", ranks);
        struct rlimit limit = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
        run_job(small_job, SET("train.steps=2", "optimizer.warmup_steps=0", many, dir, log), &result);
        expect_ok(&result);
        limit.rlim_cur = 1 << 20;
        fill_metrics(path, limit.rlim_cur - 700);
        signal(SIGXFSZ, SIG_IGN);
        cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
        run_job(small_job, SET("optimizer.warmup_steps=0", many, dir, log), &result);
        limit.rlim_cur = RLIM_INFINITY;
        setrlimit(RLIMIT_FSIZE, &limit);
        cr_assert_eq(result.status[0], SHERD_IO, "status %d", result.status[0]);
        if (ranks == 2) cr_assert_eq(result.status[1], SHERD_PEER);
        cr_assert_not_null(strstr(result.cause, "cannot append the row of step "), "%s", result.cause);
        cr_assert(result.step_count >= 2 && result.step_count <= 4, "%d steps", (int)result.step_count);
        cr_assert_eq(result.save_count, 1);
        cr_assert_eq(result.save_steps[0], 2 + result.step_count, "the last step is not saved");
    }
}
