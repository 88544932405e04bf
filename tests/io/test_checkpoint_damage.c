/* Checkpoints that are not what was written: every byte, every length, files of others. What is damaged is never loaded
 * by anybody: neither by a rank of another layout nor into an export. */
#include "checkpoints.h"
#include "io/checkpoint_block.h"
#include "io/checkpoint_export.h"
#include "io/checkpoint_reader.h"
#include "runtime/base/dtype.h"
#include "runtime/base/memory.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const small_job saved = {.step = 3, .world_size = 2, .compression = 1, .seed = 5};

/* Reads everything as the one rank of a job of one. */
static sherd_status load_alone(const small_job *job, bool *equal) {
    void *mark = mark_taken();
    small_job alone = *job;
    alone.world_size = 1;
    rank_slices wanted = job_slices(&alone, 0, true), expected = job_slices(&alone, 0, false);
    char *memory = take((size_t)shd_reader_memory_bytes(1) + SHD_BLOCK_ALIGN_BYTES);
    memory += SHD_BLOCK_ALIGN_BYTES - (uintptr_t)memory % SHD_BLOCK_ALIGN_BYTES;
    const shd_reader_config config = {.threads = 1, .memory = memory};
    shd_checkpoint *checkpoint = NULL;
    sherd_status status = shd_checkpoint_open(job_path(job), &checkpoint);
    if (status == SHERD_OK) {
        status = shd_checkpoint_read(checkpoint, wanted.list, wanted.count, &config);
        shd_checkpoint_close(checkpoint);
    }
    *equal = true;
    for (int64_t i = 0; i < wanted.count; i++)
        *equal = *equal && memcmp(wanted.list[i].values, expected.list[i].values,
                                  (size_t)shd_span_bytes(wanted.list[i].dtype, wanted.list[i].count)) == 0;
    release_taken(mark);
    return status;
}

/* Loading must refuse with DATA and name `file`. */
static void expect_refusal(const small_job *job, const char *file, const char *what, size_t where) {
    bool equal;
    sherd_status status = load_alone(job, &equal);
    cr_assert_eq(status, SHERD_DATA, "%s at %zu: loaded (%d)", what, where, status);
    cr_assert(strstr(sherd_last_error(), file), "%s at %zu: \"%s\" does not name %s", what, where, sherd_last_error(),
              file);
}

static void expect_whole(const small_job *job) {
    bool equal;
    cr_assert_eq(load_alone(job, &equal), SHERD_OK, "%s", sherd_last_error());
    cr_assert(equal);
}

/* One bit of every `stride`-th byte, another one each time. */
static void damage_every(const char *name, size_t stride) {
    char *folder = make_folder();
    small_job job = saved;
    job.parent = folder;
    cr_assert_eq(save_job(&job), SHERD_OK);
    expect_whole(&job);
    char *path = path_in(job_path(&job), name);
    size_t bytes;
    char *content = read_whole(path, &bytes);
    for (size_t at = 0, bit = 0; at < bytes; at += stride, bit++) {
        content[at] ^= (char)(1 << bit % 8);
        write_whole(path, content, bytes);
        expect_refusal(&job, name, "flipped bit", at);
        content[at] ^= (char)(1 << bit % 8);
    }
    write_whole(path, content, bytes);
    expect_whole(&job);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
    remove_folder(folder);
}

Test(checkpoint_damage, flipped_bits_of_a_rank_file_are_noticed, .timeout = 60) { damage_every("rank-00001.bin", 97); }
Test(checkpoint_damage, flipped_bits_of_the_manifest_are_noticed, .timeout = 60) { damage_every("manifest.json", 3); }

Test(checkpoint_damage, every_other_length_of_a_file_is_noticed) {
    static const char *names[] = {"rank-00000.bin", "manifest.json"};
    char *folder = make_folder();
    small_job job = saved;
    job.parent = folder;
    cr_assert_eq(save_job(&job), SHERD_OK);
    for (int i = 0; i < 2; i++) {
        char *path = path_in(job_path(&job), names[i]);
        size_t bytes;
        char *content = read_whole(path, &bytes);
        content = memcpy(take(bytes + 8192), content, bytes);
        memset(content + bytes, i ? '\n' : 0, 8192);
        for (size_t length = 0; length <= bytes + 8192; length += length % 4096 < 2 || length % 4096 == 4095 ? 1 : 31) {
            write_whole(path, content, length);
            if (length != bytes) expect_refusal(&job, names[i], "length", length);
        }
        write_whole(path, content, bytes);
        expect_whole(&job);
        cr_assert_eq(unlink(path), 0);
        expect_refusal(&job, i ? "manifest.json" : names[i], "missing", 0);
        write_whole(path, content, bytes);
    }
    remove_folder(folder);
}

Test(checkpoint_damage, an_export_of_damaged_values_fails_and_leaves_the_old_file) {
    char *folder = make_folder(), *to = path_in(folder, "model.safetensors");
    small_job job = saved;
    job.parent = folder;
    job.compression = 0;
    cr_assert_eq(save_job(&job), SHERD_OK);
    cr_assert_eq(shd_checkpoint_export(folder, to), SHERD_OK);
    size_t bytes, before_bytes, after_bytes;
    char *before = read_whole(to, &before_bytes), *path = path_in(job_path(&job), "rank-00001.bin");
    char *content = read_whole(path, &bytes);
    content[4096 + 8] ^= 1; /* the first block is a parameter's */
    write_whole(path, content, bytes);
    cr_assert_eq(shd_checkpoint_export(folder, to), SHERD_DATA);
    cr_assert(strstr(sherd_last_error(), "rank-00001.bin") && strstr(sherd_last_error(), "wte.weight"), "%s",
              sherd_last_error());
    char *after = read_whole(to, &after_bytes);
    cr_assert(after_bytes == before_bytes && memcmp(before, after, after_bytes) == 0);
    cr_assert_eq(count_files(folder), 2);
    remove_folder(folder);
}

Test(checkpoint_damage, files_of_another_rank_or_run_are_refused) {
    char *folder = make_folder();
    small_job job = saved, other = saved, later = saved;
    job.parent = path_in(folder, "a"), other.parent = path_in(folder, "b"), later.parent = path_in(folder, "c");
    job.compression = other.compression = later.compression = 0; /* files of the same size */
    other.seed++, later.step++;
    cr_assert(save_job(&job) == SHERD_OK && save_job(&other) == SHERD_OK && save_job(&later) == SHERD_OK);
    char *one = path_in(job_path(&job), "rank-00001.bin");
    size_t bytes, foreign_bytes;
    char *content = read_whole(one, &bytes);
    const char *foreign[] = {path_in(job_path(&job), "rank-00000.bin"), path_in(job_path(&other), "rank-00001.bin"),
                             path_in(job_path(&later), "rank-00001.bin")};
    for (int i = 0; i < 3; i++) {
        char *replacement = read_whole(foreign[i], &foreign_bytes);
        write_whole(one, replacement, foreign_bytes);
        expect_refusal(&job, "rank-00001.bin", "foreign file", (size_t)i);
    }
    write_whole(one, content, bytes);
    expect_whole(&job);
    /* A manifest of another run, too. */
    char *replacement = read_whole(path_in(job_path(&other), "manifest.json"), &foreign_bytes);
    write_whole(path_in(job_path(&job), "manifest.json"), replacement, foreign_bytes);
    expect_refusal(&job, "rank-00000.bin", "foreign manifest", 0);
    remove_folder(folder);
}
