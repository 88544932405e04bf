/* From which checkpoint a job goes on, and from which it never does. */
#include "tests/io/make_job.h"
#include "tests/train/run_job.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <jansson.h>
#include <sherd/log.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

static void prepare(void) {
    enter_fresh_folder();
    make_tokens("tokens.u16", 2000, 1);
    make_tokens("other.u16", 2000, 9);
}

TestSuite(resume, .init = prepare, .fini = leave_fresh_folder, .timeout = 120);

#define SET(...) ((const char *const[]){__VA_ARGS__, NULL})

static void run_good(const char *const *settings, job_result *out) {
    run_job(small_job, settings, out);
    for (int r = 0; r < MAX_RANKS; r++)
        cr_assert_eq(out->status[r], SHERD_OK, "rank %d: status %d; %s", r, out->status[r], out->cause);
}

static char logged[1 << 16];
static void keep_line(void *user, sherd_log_level level, const char *line) {
    static const char *const kinds[] = {"error: ", "warning: ", "", "", ""};
    (void)user;
    snprintf(logged + strlen(logged), sizeof logged - strlen(logged), "%s%s\n", kinds[level], line);
}
static void listen_to_log(void) {
    logged[0] = 0;
    sherd_log_set(keep_line, NULL, SHERD_LOG_INFO);
}

/* --- damage ------------------------------------------------------------------------------------------------------- */

static void flip(const char *path, long at_percent) {
    FILE *file = fopen(path, "r+");
    cr_assert_not_null(file, "%s", path);
    fseek(file, 0, SEEK_END);
    long at = ftell(file) * at_percent / 100;
    fseek(file, at, SEEK_SET);
    int byte = fgetc(file);
    fseek(file, at, SEEK_SET);
    fputc(byte ^ 1, file);
    fclose(file);
}

static void cut(const char *path, off_t bytes) {
    struct stat about;
    cr_assert_eq(stat(path, &about), 0, "%s", path);
    cr_assert_eq(truncate(path, about.st_size - bytes), 0);
}

/* Byte `index` in the middle of the file's first values: damage that only loading finds. */
static void damage_values(const char *folder, int rank) {
    char path[128];
    snprintf(path, sizeof path, "%s/rank-%05d.bin", folder, rank);
    FILE *file = fopen(path, "r+");
    cr_assert_not_null(file, "%s", path);
    fseek(file, 4096 + 10, SEEK_SET);
    int byte = fgetc(file);
    fseek(file, 4096 + 10, SEEK_SET);
    fputc(byte ^ 4, file);
    fclose(file);
}

static void damage(const char *folder, int way) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, way < 2 ? "manifest.json" : "rank-00001.bin");
    switch (way) {
    case 0: flip(path, 40); break;
    case 1:
    case 2: cr_assert_eq(unlink(path), 0); break;
    case 3: cut(path, 1); break;
    default: damage_values(folder, 1); break;
    }
}

static void copy_tree(const char *from, const char *to) {
    char command[256];
    snprintf(command, sizeof command, "rm -rf %s && cp -r %s %s", to, from, to);
    cr_assert_eq(system(command), 0);
}

static void expect_whole_rows(const char *path, const job_result *whole) {
    size_t length;
    char *rows = read_file(path, &length), *line = rows;
    for (int s = 0; s < 12; s++, line = strchr(line, '\n') + 1) {
        json_t *row = json_loads(line, JSON_DISABLE_EOF_CHECK, NULL);
        cr_assert_eq(json_integer_value(json_object_get(row, "step")), s);
        cr_assert_eq(json_real_value(json_object_get(row, "loss")), whole->steps[s].loss);
        cr_assert_float_eq(json_real_value(json_object_get(row, "lr")), whole->steps[s].lr, 1e-10);
        json_decref(row);
    }
    cr_assert_eq(*line, 0);
    free(rows);
}

#define AGAIN "checkpoint.dir=again", "log.dir=again", "checkpoint.every=4", "checkpoint.keep=0", "run.ranks=2"

/* Manifest, missing and cut files, and values: all ranks go on together from the newest that is whole. */
Test(resume, passes_over_what_is_damaged_and_says_so) {
    static job_result whole, part;
    run_good(SET("run.ranks=2"), &whole);
    run_job_stopping(small_job, SET(AGAIN), 1, 9, &part);
    cr_assert_eq(part.summary.step, 10);
    copy_tree("again", "before");
    for (int way = 0; way < 5; way++)
        for (int both = 0; both < 2; both++) {
            copy_tree("before", "again");
            damage("again/step-00000010", way);
            if (both) damage("again/step-00000008", 4);
            listen_to_log();
            run_good(SET(AGAIN), &part);
            cr_assert_eq(part.summary.first_step, both ? 4 : 8, "way %d", way);
            cr_assert_not_null(strstr(logged, "step-00000010 is damaged and is passed over: "), "%s", logged);
            cr_assert_eq(strstr(logged, "step-00000008 is damaged and is passed over: ") != NULL, both, "%s", logged);
            for (int64_t s = part.summary.first_step; s < 12; s++)
                cr_assert_eq(part.steps[s - part.summary.first_step].loss, whole.steps[s].loss, "way %d", way);
            expect_whole_rows("again/metrics.jsonl", &whole);
        }
}

Test(resume, never_starts_from_the_beginning_beside_damaged_checkpoints) {
    static job_result part;
    size_t before, after;
    run_good(SET(AGAIN, "train.steps=8", "optimizer.schedule=constant"), &part);
    free(read_file("again/metrics.jsonl", &before));
    for (int way = 4; way >= 0; way--) {
        copy_tree("again", "kept");
        damage("again/step-00000004", way);
        damage("again/step-00000008", way);
        run_job(small_job, SET(AGAIN), &part);
        cr_assert_eq(part.status[0], SHERD_DATA, "way %d", way);
        cr_assert_eq(part.status[1], SHERD_DATA, "way %d", way);
        cr_assert_not_null(strstr(part.cause, "again/step-0000000"), "%s", part.cause);
        cr_assert_not_null(strstr(part.cause, "; no checkpoint in "), "%s", part.cause);
        cr_assert_eq(part.step_count, 0);
        free(read_file("again/metrics.jsonl", &after));
        cr_assert_eq(before, after, "rows were lost to a job that did not start");
        copy_tree("kept", "again");
    }
    run_job(small_job, SET(AGAIN, "checkpoint.resume=never"), &part);
    cr_assert_eq(part.status[0], SHERD_OK);
    cr_assert_eq(part.step_count, 12);
}

Test(resume, of_a_path_is_that_or_nothing) {
    static job_result part;
    run_good(SET(AGAIN, "train.steps=8", "optimizer.schedule=constant"), &part);
    run_good(SET("train.steps=8", "optimizer.schedule=constant", "run.ranks=2", "log.dir=twice",
                 "checkpoint.resume=again/step-00000004"),
             &part);
    cr_assert_eq(part.summary.first_step, 4);
    for (int way = 0; way < 5; way++) {
        copy_tree("again", "kept");
        damage("kept/step-00000008", way);
        run_job(small_job,
                SET("run.ranks=2", "optimizer.schedule=constant", "checkpoint.dir=fresh",
                    "checkpoint.resume=kept/step-00000008"),
                &part);
        cr_assert_eq(part.status[0], SHERD_DATA, "way %d: %d", way, part.status[0]);
        cr_assert_eq(part.step_count, 0);
        cr_assert_not_null(strstr(part.cause, "kept/step-00000008"), "%s", part.cause);
    }
}

/* Nothing is loaded, and still heads and indexes are read. */
Test(resume, a_look_at_a_job_tells_what_is_damaged) {
    static job_result part;
    run_good(SET(AGAIN, "train.steps=8", "optimizer.schedule=constant"), &part);
    copy_tree("again", "kept");
    for (int way = 0; way < 5; way++) {
        copy_tree("kept", "again");
        damage("again/step-00000008", way);
        if (way == 4) { /* values are not read; the index is */
            copy_tree("kept", "again");
            flip("again/step-00000008/rank-00001.bin", 99);
        }
        listen_to_log();
        cr_assert_eq(look_at_job(small_job, SET(AGAIN)), SHERD_OK, "way %d: %s", way, sherd_last_error());
        cr_assert_not_null(strstr(logged, "warning: "), "way %d", way);
        cr_assert_not_null(strstr(logged, "step-00000008 is damaged and is passed over: "), "way %d: %s", way, logged);
    }
    damage("again/step-00000004", 0);
    cr_assert_eq(look_at_job(small_job, SET(AGAIN)), SHERD_DATA);
}

/* Names of that kind in the folder. */
static int count_named(const char *folder, const char *part) {
    int count = 0;
    DIR *listing = opendir(folder);
    cr_assert_not_null(listing);
    for (struct dirent *entry; (entry = readdir(listing));) count += strstr(entry->d_name, part) != NULL;
    closedir(listing);
    return count;
}

/* Of another branch of the run, they would be taken for its newest. */
Test(resume, moves_aside_what_comes_after_the_one_it_goes_on_from) {
    static job_result part;
    run_good(SET(AGAIN, "optimizer.schedule=constant"), &part);
    cr_assert_eq(count_named("again", "step-"), 3);
    run_good(SET(AGAIN, "optimizer.schedule=constant", "train.steps=10", "checkpoint.every=5",
                 "checkpoint.resume=again/step-00000004"),
             &part);
    cr_assert_eq(part.summary.first_step, 4);
    cr_assert_eq(count_named("again", "step-00000004"), 1);
    cr_assert_eq(count_named("again", ".aside-"), 2);
    run_good(SET(AGAIN, "optimizer.schedule=constant"), &part);
    cr_assert_eq(part.summary.first_step, 10, "the branch that was left is taken");
    /* A fresh start leaves all of them. */
    run_good(SET(AGAIN, "optimizer.schedule=constant", "train.steps=2", "optimizer.warmup_steps=0",
                 "checkpoint.resume=never"),
             &part);
    cr_assert_eq(count_named("again", "step-0000") - count_named("again", ".aside-"), 1);
}

/* A manifest, sealed again after `from` has become `to`, of the same length. */
static void change_manifest(const char *path, const char *from, const char *to) {
    size_t length;
    char *text = read_file(path, &length), *at = strstr(text, from);
    cr_assert_not_null(at, "%s", text);
    memcpy(at, to, strlen(to));
    text[length - 33] = 0;
    char *sealed = malloc(length + 64);
    int bytes =
        sprintf(sealed, "%s,\n  \"xxh3\": \"%016llx\"\n}\n", text, (unsigned long long)XXH3_64bits(text, strlen(text)));
    write_file(path, sealed, (size_t)bytes);
    free(sealed);
    free(text);
}

/* To a newer build it may be as good as any: to pass it over would be to train its steps again. */
Test(resume, refuses_to_pass_over_what_another_build_can_read) {
    static job_result part;
    run_good(SET(AGAIN, "train.steps=8", "optimizer.schedule=constant"), &part);
    change_manifest("again/step-00000008/manifest.json", "\"version\": 2", "\"version\": 7");
    run_job(small_job, SET(AGAIN), &part);
    cr_assert_eq(part.status[0], SHERD_DATA);
    cr_assert_not_null(strstr(part.cause, "again/step-00000008"), "%s", part.cause);
    cr_assert_not_null(strstr(part.cause, "version 7"), "%s", part.cause);
    cr_assert_eq(part.step_count, 0);
    cr_assert_eq(check_job(small_job, SET(AGAIN)), SHERD_DATA);
}

Test(resume, says_what_is_different) {
    static job_result part;
    run_good(SET("train.steps=4", "optimizer.schedule=constant", "run.ranks=2"), &part);
    listen_to_log();
    run_good(SET("optimizer.schedule=constant", "run.ranks=3", "shard.stage=1", "shard.gather=copy",
                 "train.micro_batch=2", "train.precision=bf16", "optimizer.lr=1e-3", "checkpoint.every=7"),
             &part);
    static const char *const said[] = {"run.ranks was 2 and is 3 now",
                                       "shard.stage was 3 and is 1 now",
                                       "shard.gather was \"auto\" and is \"copy\" now",
                                       "train.micro_batch was 1 and is 2 now",
                                       "train.precision was \"fp32\" and is \"bf16\" now",
                                       "optimizer.lr was 0.01 and is 0.001 now"};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        cr_expect_not_null(strstr(logged, said[i]), "%s: %s", said[i], logged);
    cr_assert_null(strstr(logged, "checkpoint.every"));
}

/* --- what may have changed ---------------------------------------------------------------------------------------- */

Test(resume, goes_on_with_other_data_and_seed_when_it_is_allowed) {
    static job_result first, second, alone;
    run_good(SET("train.steps=4", "optimizer.schedule=constant"), &first);
    static const struct {
        const char *setting, *despite, *other, *says;
    } cases[] = {
        {"data.train=other.u16", "checkpoint.resume_despite=[data]", "checkpoint.resume_despite=[seed]",
         "resuming: data.train has changed: it was "},
        {"data.shuffle=false", "checkpoint.resume_despite=[seed, data]", "checkpoint.resume_despite=[seed]",
         "resuming: data.shuffle was true and is false now, which checkpoint.resume_despite allows"},
        {"train.seed=7", "checkpoint.resume_despite=[seed]", "checkpoint.resume_despite=[data]",
         "resuming: train.seed was 1 and is 7 now, which checkpoint.resume_despite allows"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char dir[32];
        snprintf(dir, sizeof dir, "checkpoint.dir=ckpt%zu", i);
        copy_tree("ckpt", dir + strlen("checkpoint.dir="));
        run_job(small_job, SET("optimizer.schedule=constant", dir, cases[i].setting, cases[i].other), &second);
        cr_assert_eq(second.status[0], SHERD_DATA, "%s", cases[i].setting);
        cr_assert_not_null(strstr(second.cause, "or allow it with checkpoint.resume_despite: ["), "%s", second.cause);
        listen_to_log();
        run_good(SET("optimizer.schedule=constant", dir, cases[i].setting, cases[i].despite), &second);
        cr_assert_eq(second.summary.first_step, 4);
        cr_assert_not_null(strstr(logged, cases[i].says), "%s", logged);
        cr_assert_not_null(strstr(logged, "goes on at sequence 48 of the new one"), "%s", logged);
        /* The same parameters as before, other sequences. */
        run_good(SET("optimizer.schedule=constant", "checkpoint.dir=alone", "checkpoint.resume=ckpt/step-00000004"),
                 &alone);
        cr_assert_neq(alone.steps[0].loss, second.steps[0].loss, "%s", cases[i].setting);
        cr_assert_float_eq(alone.steps[0].loss, second.steps[0].loss, 0.5, "%s", cases[i].setting);
    }
    cr_assert_eq(check_job(small_job, SET("model.d_model=32", "checkpoint.resume_despite=[data, seed]")), SHERD_DATA);
}

/* --- parameters alone --------------------------------------------------------------------------------------------- */

Test(resume, of_weights_alone_starts_at_step_0_and_then_goes_on_by_itself) {
    static job_result first, tuned, again;
    run_good(SET("train.steps=6", "checkpoint.dir=base", "train.seed=5"), &first);
    listen_to_log();
    run_good(SET("checkpoint.resume=base", "checkpoint.resume_weights_only=true", "data.train=other.u16",
                 "train.steps=5", "optimizer.schedule=constant"),
             &tuned);
    cr_assert_eq(tuned.summary.first_step, 0);
    cr_assert_eq(tuned.step_count, 5);
    cr_assert_not_null(strstr(logged, "starts at step 0 with the parameters of "), "%s", logged);
    cr_assert_lt(tuned.steps[0].loss, 4.08, "the parameters are random: %g", tuned.steps[0].loss);
    cr_assert_float_eq(tuned.steps[0].lr, 0.01 / 3, 1e-12, "the schedule starts anew");
    /* Started again, the job goes on from its own checkpoint. */
    run_good(SET("checkpoint.resume=base", "checkpoint.resume_weights_only=true", "data.train=other.u16",
                 "train.steps=7", "optimizer.schedule=constant"),
             &again);
    cr_assert_eq(again.summary.first_step, 5);
    cr_assert_eq(again.step_count, 2);
}

Test(resume, leaves_what_is_to_be_skipped_as_a_fresh_run_has_it) {
    static job_result fresh, all, some, none;
    run_good(SET("train.steps=6", "checkpoint.dir=base"), &fresh);
#define TUNE                                                                                                           \
    "checkpoint.resume=base", "checkpoint.resume_weights_only=true", "train.steps=1", "optimizer.warmup_steps=0"
    run_good(SET(TUNE, "checkpoint.dir=a"), &none);
    run_good(SET(TUNE, "checkpoint.dir=b", "checkpoint.resume_skip=[\"*\"]"), &all);
    run_good(SET(TUNE, "checkpoint.dir=c", "checkpoint.resume_skip=[\"h.1.*\"]"), &some);
    cr_assert_eq(all.steps[0].loss, fresh.steps[0].loss, "skipping all is a fresh run");
    cr_assert_neq(none.steps[0].loss, fresh.steps[0].loss);
    cr_assert_neq(some.steps[0].loss, none.steps[0].loss);
    cr_assert_neq(some.steps[0].loss, all.steps[0].loss);
    run_job(small_job, SET(TUNE, "checkpoint.dir=d", "checkpoint.resume_skip=[\"h.1.*\", nothing]"), &some);
    cr_assert_neq(some.status[0], SHERD_OK);
    cr_assert_not_null(strstr(some.cause, "\"nothing\" matches no tensor"), "%s", some.cause);
    cr_assert_not_null(strstr(some.cause, "checkpoint.resume_skip"), "%s", some.cause);
}
