/* What is made of what ranks have found, from boards that are filled in by hand; and the probe of a disk that lies. */
#include "io/file.h"
#include "runtime/train/checks/disk_probe.h"
#include "runtime/train/checks/trial_judge.h"
#include "runtime/train/job_setup.h"
#include "tests/io/make_job.h"
#include "tests/train/run_job.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- the disk ----------------------------------------------------------------------------------------------------- */

/* Reads of the probe come here first (the linker's --wrap). */
static bool lies;
sherd_status __real_shd_file_read(int descriptor, const char *path, int64_t offset, void *out, int64_t bytes);
sherd_status __wrap_shd_file_read(int descriptor, const char *path, int64_t offset, void *out, int64_t bytes);
sherd_status __wrap_shd_file_read(int descriptor, const char *path, int64_t offset, void *out, int64_t bytes) {
    sherd_status status = __real_shd_file_read(descriptor, path, offset, out, bytes);
    if (lies && offset > 0) ((unsigned char *)out)[bytes - 1] ^= 4;
    return status;
}

static int count_entries(const char *path) {
    int count = 0;
    DIR *folder = opendir(path);
    while (folder && readdir(folder)) count++;
    if (folder) closedir(folder);
    return count;
}

Test(disk_probe, measures_and_leaves_nothing, .init = enter_fresh_folder, .fini = leave_fresh_folder) {
    shd_disk_rates rates;
    cr_assert_eq(shd_disk_probe(".", 20 << 20, 5000, &rates), SHERD_OK, "%s", sherd_last_error());
    cr_expect_eq(rates.bytes, 20 << 20);
    cr_expect(rates.write_bytes_per_s > 0 && rates.read_bytes_per_s > 0);
    cr_expect_eq(count_entries("."), 2);
    cr_assert_eq(shd_disk_probe(".", 5000, 5000, &rates), SHERD_OK, "%s", sherd_last_error());
    cr_expect_eq(rates.bytes, 4096);
    cr_expect_eq(shd_disk_probe(".", 4095, 5000, &rates), SHERD_IO);
    cr_expect_eq(shd_disk_probe("nowhere", 1 << 20, 5000, &rates), SHERD_IO);
}

Test(disk_probe, ends_when_its_time_is_over, .init = enter_fresh_folder, .fini = leave_fresh_folder) {
    shd_disk_rates rates;
    cr_assert_eq(shd_disk_probe(".", INT64_C(1) << 40, 0, &rates), SHERD_OK, "%s", sherd_last_error());
    cr_expect_eq(rates.bytes, 4 << 20);
}

Test(disk_probe, finds_bytes_that_read_back_otherwise, .init = enter_fresh_folder, .fini = leave_fresh_folder) {
    shd_disk_rates rates;
    lies = true;
    cr_assert_eq(shd_disk_probe(".", 12 << 20, 5000, &rates), SHERD_IO);
    cr_expect(strstr(sherd_last_error(), "reads back otherwise, in bytes 4194304 to 8388608"), "%s",
              sherd_last_error());
}

/* --- boards ------------------------------------------------------------------------------------------------------- */

enum { RANKS = 3, MOST = 16 };

typedef struct judged {
    int32_t count;
    shd_finding found[MOST];
} judged;

static void keep(void *user, const shd_finding *finding) {
    judged *all = user;
    if (all->count < MOST) all->found[all->count++] = *finding;
}

static const shd_finding *find(const judged *all, const char *check) {
    for (int32_t i = 0; i < all->count; i++)
        if (strcmp(all->found[i].check, check) == 0) return &all->found[i];
    cr_assert_fail("there is no finding of %s", check);
    return NULL;
}

static shd_trial_board *board;
static shd_trial_end end;
static shd_checkup checkup;

/* Three ranks that have gone through all, and found nothing. */
static void set_up(void) {
    shd_job *job;
    enter_fresh_folder();
    make_tokens("tokens.u16", 2000, 1);
    write_text("job.yaml", small_job);
    cr_assert_eq(shd_job_load("job.yaml", (shd_job_setting[]){{.text = "run.ranks=3"}, {.text = "checkpoint.every=10"}},
                              2, &job),
                 SHERD_OK, "%s", sherd_last_error());
    shd_checkup_init(&checkup, job);
    checkup.room.one_bytes = 1000;
    checkup.write_bytes_per_s = 1e6;
    board = calloc(1, sizeof *board);
    end = (shd_trial_end){.rank_count = RANKS, .program = 7, .job = 8, .clock_ms = 1e12};
    for (int32_t r = 0; r < RANKS; r++) {
        board->ranks[r] = (shd_trial_rank){.phase = SHD_TRIAL_DONE,
                                           .program = 7,
                                           .job = 8,
                                           .clock_ms = 1e12 + r,
                                           .loss = log(60),
                                           .target_count = 24,
                                           .tokens = 24,
                                           .random = true,
                                           .step_ms = 10,
                                           .compute_ms = 9,
                                           .threads = 1,
                                           .overfit_steps = 9,
                                           .overfit_first = 4,
                                           .overfit_last = 0.01};
        board->ranks[r].comm.gather_bytes_per_s = 1e9 * (r + 1);
    }
}

static void tear_down(void) {
    shd_job *job = (shd_job *)checkup.job;
    shd_checkup_fini(&checkup);
    shd_job_destroy(job);
    free(board);
    leave_fresh_folder();
}

static judged judge(bool overfit) {
    judged all = {0};
    const shd_trial trial = {.job = checkup.job, .overfit = overfit};
    shd_trial_judge(&checkup, &trial, board, &end, keep, &all);
    return all;
}

static void expect(const judged *all, const char *check, shd_check_state state, const char *words) {
    const shd_finding *found = find(all, check);
    cr_expect_eq(found->state, state, "%s is %s: %s -> %s", check, shd_check_state_text(found->state), found->text,
                 found->advice);
    cr_expect(strstr(found->text, words) || strstr(found->advice, words), "%s: no '%s' in: %s -> %s", check, words,
              found->text, found->advice);
}

TestSuite(trial_judge, .init = set_up, .fini = tear_down);

Test(trial_judge, finds_nothing_where_there_is_nothing) {
    judged all = judge(true);
    cr_expect_eq(all.count, 6);
    for (int32_t i = 0; i < all.count; i++)
        cr_expect_eq(all.found[i].state, SHD_CHECK_OK, "%s: %s -> %s", all.found[i].check, all.found[i].text,
                     all.found[i].advice);
    expect(&all, "collectives", SHD_CHECK_OK, "gather 954 MiB/s"); /* the slowest rank's */
    cr_expect_eq(judge(false).count, 5);
}

Test(trial_judge, names_the_rank_with_another_program_job_or_clock) {
    board->ranks[2].program = 9;
    judged all = judge(false);
    expect(&all, "ranks", SHD_CHECK_ERROR, "rank 2 runs another program");
    board->ranks[2].program = 7;
    board->ranks[1].job = 9;
    all = judge(false);
    expect(&all, "ranks", SHD_CHECK_ERROR, "rank 1 has another job");
    board->ranks[1].job = 8;
    board->ranks[1].clock_ms -= 5000;
    all = judge(false);
    expect(&all, "ranks", SHD_CHECK_ERROR, "the clock of rank 1 is 5.0 s behind");
}

Test(trial_judge, blames_the_rank_that_failed_by_itself) {
    for (int32_t r = 0; r < RANKS; r++) {
        board->ranks[r].phase = SHD_TRIAL_STEP;
        board->ranks[r].status = r == 1 ? SHERD_NUMERIC : SHERD_PEER;
        strcpy(board->ranks[r].text, r == 1 ? "loss is nan" : "rank 1 was lost");
    }
    judged all = judge(true);
    expect(&all, "ranks", SHD_CHECK_OK, "3 started");
    expect(&all, "step", SHD_CHECK_ERROR, "rank 1: loss is nan");
    cr_expect_eq(find(&all, "step")->status, SHERD_NUMERIC);
    expect(&all, "cores", SHD_CHECK_SKIPPED, "because of the error in step");
    expect(&all, "overfit", SHD_CHECK_SKIPPED, "because of the error in step");
    strcpy(end.lost, "rank 1 was killed by signal 9");
    board->ranks[1].status = SHERD_OK;
    all = judge(true);
    expect(&all, "step", SHD_CHECK_ERROR, "killed by signal 9");
}

Test(trial_judge, warns_of_a_loss_that_is_far_off) {
    board->ranks[0].loss = 2;
    judged all = judge(false);
    expect(&all, "step", SHD_CHECK_WARNING, "far off for a fresh model");
    board->ranks[0].random = false; /* a trained one may */
    all = judge(false);
    expect(&all, "step", SHD_CHECK_OK, "ln(vocab_size) is 4.094");
    board->ranks[0].loss = 9;
    all = judge(false);
    expect(&all, "step", SHD_CHECK_WARNING, "worse than guessing");
    board->ranks[0].target_count = 0;
    all = judge(false);
    expect(&all, "step", SHD_CHECK_WARNING, "no target of the first batch counts");
}

Test(trial_judge, warns_of_cores_and_disks_by_what_was_measured) {
    for (int32_t r = 0; r < RANKS; r++) board->ranks[r].wait_ms = 1;
    judged all = judge(false);
    expect(&all, "cores", SHD_CHECK_OK, "10% of the step");
    for (int32_t r = 0; r < RANKS; r++) board->ranks[r].wait_ms = 3, board->ranks[r].threads = 4000;
    all = judge(false);
    expect(&all, "cores", SHD_CHECK_WARNING, "more threads than cores");
    /* 4 micro-batches a step of 10 ms, every 10 steps: 0.4 s between saves. */
    checkup.write_bytes_per_s = 3000;
    all = judge(false);
    expect(&all, "saving", SHD_CHECK_WARNING, "training would wait");
    checkup.write_bytes_per_s = 3200;
    all = judge(false);
    expect(&all, "saving", SHD_CHECK_OK, "a checkpoint every 0.4 s");
}

/* The advice on saving of a job that saves so often, when a save takes 8 s: async ones want 10 s between them. */
static void expect_advice(int64_t every, double minutes, bool async, const char *advice) {
    shd_job *job = (shd_job *)checkup.job;
    job->checkpoint.every = every;
    job->checkpoint.every_minutes = minutes;
    job->checkpoint.async = async;
    checkup.write_bytes_per_s = 125;
    judged all = judge(false);
    cr_expect_str_eq(find(&all, "saving")->advice, advice);
}

Test(trial_judge, names_the_key_that_makes_saves_too_frequent) {
    /* A step takes 0.04 s. */
    const char slow[] = "the disk is too slow for that, and training would wait for it: ";
    const char waits[] = "training waits for that time: set checkpoint.async: true, or ";
    char text[300];
    snprintf(text, sizeof text, "%sraise checkpoint.every to 251", slow);
    expect_advice(10, 0, true, text);
    expect_advice(10, 1, true, text);
    snprintf(text, sizeof text, "%sraise checkpoint.every_minutes to 0.17", slow);
    expect_advice(0, 0.01, true, text);
    expect_advice(1000, 0.01, true, text);
    snprintf(text, sizeof text, "%sraise checkpoint.every to 251 and checkpoint.every_minutes to 0.17", slow);
    expect_advice(10, 0.01, true, text);
    expect_advice(1000, 0.2, true, "");
    snprintf(text, sizeof text, "%sraise checkpoint.every_minutes to 1.34", waits);
    expect_advice(0, 1, false, text);
    snprintf(text, sizeof text, "%sraise checkpoint.every to 2001", waits);
    expect_advice(10, 0, false, text);
}

Test(trial_judge, holds_overfitting_to_its_goal) {
    board->ranks[0].overfit_last = 1.5;
    judged all = judge(true);
    expect(&all, "overfit", SHD_CHECK_WARNING, "not near zero yet");
    board->ranks[0].overfit_last = 3.9;
    all = judge(true);
    expect(&all, "overfit", SHD_CHECK_ERROR, "look at optimizer.lr");
}

Test(trial_judge, finds_the_first_bit_in_which_two_runs_differ) {
    shd_trial_board *other = calloc(1, sizeof *other);
    shd_plan *plan;
    cr_assert_eq(shd_job_plan(checkup.job, 3, 0, &plan), SHERD_OK, "%s", sherd_last_error());
    board->bits = (shd_trial_bits){.step_count = SHD_TRIAL_STEPS, .tensor_count = plan->tensor_count};
    other->ranks[0].phase = SHD_TRIAL_DONE;
    other->bits = board->bits;
    const shd_trial_end one = {.rank_count = 1};
    judged all = {0};
    shd_trial_judge_compare(other, &one, board, &end, plan, keep, &all);
    expect(&all, "compare", SHD_CHECK_OK, "on 1 and on 3 ranks: the same bits");
    all.count = 0;
    board->bits.tensors[2][3] = 1;
    board->bits.loss[2] = -0.0;
    shd_trial_judge_compare(other, &one, board, &end, plan, keep, &all);
    expect(&all, "compare", SHD_CHECK_ERROR, plan->tensors[3].name);
    expect(&all, "compare", SHD_CHECK_ERROR, "before step 2");
    all.count = 0;
    board->bits.grad_norm[1] = 1e-300;
    shd_trial_judge_compare(other, &one, board, &end, plan, keep, &all);
    expect(&all, "compare", SHD_CHECK_ERROR, "in step 1");
    all.count = 0;
    other->ranks[0].phase = SHD_TRIAL_STEP;
    strcpy(other->ranks[0].text, "no memory");
    other->ranks[0].status = SHERD_MEMORY;
    shd_trial_judge_compare(other, &one, board, &end, plan, keep, &all);
    expect(&all, "compare", SHD_CHECK_ERROR, "rank 0: no memory");
    shd_plan_destroy(plan);
    free(other);
}
