#include "tests/io/files.h"
#include "tests/io/stored_job.h"

#include <criterion/criterion.h>
#include <sherd/status.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What verifying said: one line for each piece of damage. */
typedef struct findings {
    char text[16384];
    int64_t done_bytes, total_bytes, reports;
} findings;

static void note(void *user, const shd_damage *damage, int64_t done_bytes, int64_t total_bytes) {
    findings *to = user;
    cr_assert(done_bytes >= to->done_bytes && done_bytes <= total_bytes, "progress never goes back");
    to->done_bytes = done_bytes;
    to->total_bytes = total_bytes;
    to->reports++;
    if (!damage) return;
    cr_assert(strstr(damage->cause, damage->path), "%s does not name %s", damage->cause, damage->path);
    const char *name = strrchr(damage->path, '/') + 1;
    size_t length = strlen(to->text);
    if (damage->tensor)
        snprintf(to->text + length, sizeof to->text - length, "%s %s %s %lld %lld\n", name, damage->tensor,
                 damage->state, (long long)damage->first, (long long)damage->count);
    else
        snprintf(to->text + length, sizeof to->text - length, "%s\n", name);
}

/* `config` may be NULL. The number of pieces. */
static int64_t verify_with(const stored_job *job, const shd_reader_config *config, findings *out) {
    int64_t damaged = -1;
    out->text[0] = 0;
    out->done_bytes = out->total_bytes = out->reports = 0;
    cr_assert_eq(shd_checkpoint_verify_with(job->path, config, note, out, &damaged), SHERD_OK);
    return damaged;
}

static int64_t verify(const stored_job *job, findings *out) { return verify_with(job, NULL, out); }

static int64_t file_bytes(const stored_job *job, const char *name) {
    struct stat about;
    cr_assert_eq(stat(path_in(job->path, name), &about), 0);
    return about.st_size;
}

static void clean(const stored_job *job) {
    remove_folder(job->path);
    remove_folder(job->parent);
}

Test(checkpoint_verify, of_a_sound_checkpoint_finds_nothing_and_reads_everything) {
    for (int32_t ranks = 1; ranks <= 8; ranks++) {
        stored_job job = {.ranks = ranks, .compression = 1, .state_dtype = SHERD_INT8, .large = ranks == 2};
        store_job(&job);
        findings found;
        int64_t bytes = 0;
        for (int32_t rank = 0; rank < ranks; rank++) {
            char name[32];
            snprintf(name, sizeof name, "rank-%05d.bin", rank);
            bytes += file_bytes(&job, name);
        }
        cr_assert_eq(verify(&job, &found), 0, "%s", found.text);
        cr_assert(found.done_bytes == bytes && found.total_bytes == bytes && found.reports > ranks);
        clean(&job);
    }
}

/* Reads all that a checkpoint of one rank has; what its files cannot give is a failure. */
static sherd_status load_all(const stored_job *job, const shd_reader_config *config, float *values) {
    shd_keep *keep = shd_keep_create();
    shd_checkpoint_manifest manifest;
    shd_checkpoint_slice wanted[] = {{"wte.weight", "parameter", 0, 17 * 257, values, SHERD_FP32},
                                     {"wte.weight", "exp_avg", 0, 17 * 257, values + 5000, SHERD_FP32},
                                     {"h.weight", "parameter", 0, 700, values + 10000, SHERD_FP32},
                                     {"h.weight", "exp_avg", 0, 700, values + 11000, SHERD_FP32},
                                     {"h.scale", "parameter", 0, 1, values + 12000, SHERD_FP32},
                                     {"h.scale", "exp_avg", 0, 1, values + 12001, SHERD_FP32},
                                     {"h.bias", "parameter", 0, 523, values + 13000, SHERD_FP32}};
    shd_reader *reader = NULL;
    sherd_status status = read_stored_manifest(job, keep, &manifest);
    if (status == SHERD_OK) status = shd_reader_open(job->path, &manifest, &reader);
    if (status == SHERD_OK) status = shd_reader_read(reader, wanted, sizeof wanted / sizeof *wanted, config);
    shd_reader_destroy(reader);
    shd_keep_destroy(keep);
    return status;
}

/* Every byte of every file of a checkpoint, one bit of it after the other: verifying names the file, and loading refuses. */
static void flip_all(const stored_job *job, const char *name, const shd_reader_config *config, float *values) {
    int64_t bytes = file_bytes(job, name);
    for (int64_t at = 0; at < bytes; at++) {
        void *mark = mark_taken();
        findings found;
        flip_stored(job, name, at, (int)(at % 8));
        int64_t damaged = verify_with(job, config, &found);
        cr_assert(damaged == 1 && strncmp(found.text, name, strlen(name)) == 0, "byte %lld of %s: %lld, %s",
                  (long long)at, name, (long long)damaged, found.text);
        sherd_status status = load_all(job, config, values);
        cr_assert(status == SHERD_DATA || status == SHERD_UNSUPPORTED, "byte %lld of %s: %d", (long long)at, name,
                  status);
        cr_assert(strstr(sherd_last_error(), name), "byte %lld of %s: %s", (long long)at, name, sherd_last_error());
        flip_stored(job, name, at, (int)(at % 8));
        release_taken(mark);
    }
    cr_assert_eq(load_all(job, config, values), SHERD_OK, "%s", sherd_last_error());
}

Test(checkpoint_verify, finds_every_byte_that_changed_as_every_load_does, .timeout = 120) {
    stored_job job = {.ranks = 1, .compression = 1, .state_dtype = SHERD_FP32};
    store_job(&job);
    shd_reader_config config = stored_config(1);
    float *values = take(20000 * sizeof *values);
    cr_assert_eq(load_all(&job, &config, values), SHERD_OK, "%s", sherd_last_error());
    flip_all(&job, "rank-00000.bin", &config, values);
    flip_all(&job, "manifest.json", &config, values);
    clean(&job);
}

Test(checkpoint_verify, goes_on_after_damage_of_every_kind) {
    stored_job job = {.ranks = 5, .state_dtype = SHERD_FP32},
               other = {.ranks = 5, .state_dtype = SHERD_FP32, .step = 41};
    store_job(&job);
    store_job(&other);
    findings found;
    flip_stored(&job, "rank-00000.bin", 4096 + 9, 1);
    flip_stored(&job, "rank-00000.bin", file_bytes(&job, "rank-00000.bin") - 2 * 4096,
                3); /* padding of the last block */
    unlink(path_in(job.path, "rank-00001.bin"));
    cr_assert_eq(rename(path_in(other.path, "rank-00002.bin"), path_in(job.path, "rank-00002.bin")), 0);
    cr_assert_eq(truncate(path_in(job.path, "rank-00003.bin"), file_bytes(&job, "rank-00003.bin") + 4096), 0);
    cr_assert_eq(truncate(path_in(job.path, "rank-00004.bin"), file_bytes(&job, "rank-00004.bin") - 4096), 0);
    for (int32_t threads = 1; threads <= 4; threads++) {
        shd_reader_config config = stored_config(threads);
        cr_assert_eq(verify_with(&job, &config, &found), 6);
        cr_assert(stored_config_is_whole(&config));
        cr_assert_str_eq(found.text, "rank-00000.bin h.bias parameter 0 107\n"
                                     "rank-00000.bin wte.weight exp_avg 0 876\n"
                                     "rank-00001.bin\nrank-00002.bin\nrank-00003.bin\nrank-00004.bin\n");
        cr_assert_eq(found.done_bytes, found.total_bytes);
    }
    clean(&job);
    clean(&other);
}

Test(checkpoint_verify, of_a_manifest_that_is_damaged_or_missing_says_so) {
    stored_job job = {.ranks = 2, .state_dtype = SHERD_FP32};
    store_job(&job);
    findings found;
    flip_stored(&job, "manifest.json", 40, 4);
    cr_assert_eq(verify(&job, &found), 1);
    cr_assert_str_eq(found.text, "manifest.json\n");
    unlink(path_in(job.path, "manifest.json"));
    cr_assert_eq(verify(&job, &found), 1);
    cr_assert_str_eq(found.text, "manifest.json\n");
    clean(&job);
}
