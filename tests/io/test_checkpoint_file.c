#include "checkpoint_append.h"
#include "io/checkpoint_file.h"
#include "runtime/base/dtype.h"
#include "runtime/base/memory.h"
#include "tests/io/files.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <sherd/status.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>
#include <xxhash.h>

enum { STEP = 1200, RANK = 3 };

typedef struct block_room {
    shd_block_codec *codec;
    void *stored, *values;
} block_room;

static block_room make_room(void) {
    int64_t codec_bytes = shd_block_codec_bytes(0), block_bytes = SHD_BLOCK_RAW_BYTES_MAX;
    char *memory = take((size_t)(codec_bytes + 2 * block_bytes + 4096));
    memory += 4096 - (uintptr_t)memory % 4096;
    return (block_room){shd_block_codec_init(memory, 0), memory + codec_bytes, memory + codec_bytes + block_bytes};
}

/* Values that look trained: of many magnitudes, and none twice in a row. */
static float *make_values(int64_t count) {
    float *values = take((size_t)count * sizeof *values + 1);
    uint32_t random = 1;
    for (int64_t i = 0; i < count; i++) {
        random = random * 1664525 + 1013904223;
        values[i] = ((float)(random >> 8) / (1 << 24) - 0.5f) / (float)(1 + i % 17);
    }
    return values;
}

static sherd_status write_file(const char *folder, int32_t compression, int64_t count, const float *values) {
    shd_appender *appender = NULL;
    sherd_status status = shd_appender_create(folder, STEP, RANK, compression, &appender);
    if (status == SHERD_OK) status = shd_appender_add(appender, "w", "parameter", 11, count, SHERD_FP32, values);
    if (status == SHERD_OK) status = shd_appender_add(appender, "b", "exp_avg", 0, 1, SHERD_FP32, values);
    if (status == SHERD_OK) status = shd_appender_finish(appender);
    shd_appender_destroy(appender);
    return status;
}

static char *file_path(const char *folder) { return path_in(folder, "rank-00003.bin"); }

static uint64_t word_at(const char *bytes) {
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
}

Test(checkpoint_file, lies_as_its_header_says_to_the_byte) {
    char *folder = make_folder();
    float values[17];
    for (int i = 0; i < 17; i++) values[i] = (float)i / 3;
    cr_assert_eq(write_file(folder, 0, 17, values), SHERD_OK, "%s", sherd_last_error());
    size_t bytes;
    char *content = read_whole(file_path(folder), &bytes), zeros[4096] = {0};
    cr_assert_eq(bytes, 4 * 4096);
    cr_assert_eq(memcmp(content, "SHERDCKP\2\0\0\0\3\0\0\0\xb0\4\0\0\0\0\0\0", 24), 0);
    cr_assert_eq(memcmp(content + 24, zeros, 4096 - 24), 0);
    cr_assert_eq(memcmp(content + 4096, values, sizeof values), 0);
    cr_assert_eq(memcmp(content + 4096 + sizeof values, zeros, 4096 - sizeof values), 0);
    cr_assert_eq(memcmp(content + 8192, values, sizeof *values), 0);
    char expected[1024];
    int length = snprintf(
        expected, sizeof expected,
        "{\"blocks\":[{\"tensor\":\"w\",\"state\":\"parameter\",\"dtype\":\"fp32\",\"first\":11,\"count\":17,"
        "\"offset\":4096,\"transform\":\"none\",\"bytes\":68,\"xxh3\":\"%016llx\"},"
        "{\"tensor\":\"b\",\"state\":\"exp_avg\",\"dtype\":\"fp32\",\"first\":0,\"count\":1,"
        "\"offset\":8192,\"transform\":\"none\",\"bytes\":4,\"xxh3\":\"%016llx\"}]}",
        (unsigned long long)XXH3_64bits(content + 4096, 4096), (unsigned long long)XXH3_64bits(content + 8192, 4096));
    cr_assert_eq(memcmp(content + 12288, expected, (size_t)length), 0);
    cr_assert_eq(memcmp(content + 12288 + length, zeros, 4096 - 32 - (size_t)length), 0);
    cr_assert_eq(word_at(content + 16384 - 32), (uint64_t)length);
    cr_assert_eq(word_at(content + 16384 - 24), 0);
    memcpy(content + 4096, content + 12288, 4096 - 16);
    cr_assert_eq(word_at(content + 16384 - 16), XXH3_64bits(content, 8192 - 16));
    cr_assert_eq(memcmp(content + 16384 - 8, "SHERDEND", 8), 0);
    remove_folder(folder);
}

/* A tail that announces an index of more than any has, in a file that has holes enough for it. */
Test(checkpoint_file, takes_no_memory_for_an_index_that_cannot_be) {
    char *folder = make_folder();
    const float value = 1;
    cr_assert_eq(write_file(folder, 0, 1, &value), SHERD_OK);
    int descriptor = open(file_path(folder), O_RDWR);
    const int64_t bytes = (int64_t)64 << 30;
    char tail[32];
    cr_assert_eq(pread(descriptor, tail, sizeof tail, lseek(descriptor, 0, SEEK_END) - 32), 32);
    const uint64_t announced = (uint64_t)bytes - 8192;
    memcpy(tail, &announced, sizeof announced);
    if (ftruncate(descriptor, bytes) != 0) cr_skip("no file system for files of 64 GiB");
    cr_assert_eq(pwrite(descriptor, tail, sizeof tail, bytes - 32), 32);
    close(descriptor);
    shd_rank_file *file = NULL;
    const int64_t held = shd_memory_held(SHD_MEMORY_OBJECTS);
    cr_assert_eq(shd_rank_file_open(file_path(folder), STEP, RANK, &file), SHERD_DATA);
    cr_assert_not_null(strstr(sherd_last_error(), "its index would have"), "%s", sherd_last_error());
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), held);
    remove_folder(folder);
}

static void check_round_trip(const char *folder, int32_t compression, int64_t count) {
    float *values = make_values(count + 1);
    block_room room = make_room();
    shd_rank_file *file = NULL;
    cr_assert_eq(write_file(folder, compression, count, values), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(shd_rank_file_open(file_path(folder), STEP, RANK, &file), SHERD_OK, "%s", sherd_last_error());
    int64_t done = 0, most = SHD_BLOCK_RAW_BYTES_MAX / 4;
    cr_assert_eq(file->index.count, (count + most - 1) / most + 1);
    for (int64_t i = 0; i < file->index.count - 1; i++) {
        const shd_file_block *block = &file->index.blocks[i];
        cr_assert_eq(block->first, 11 + done);
        cr_assert_eq(shd_rank_file_read(file, i, room.codec, room.stored, room.values), SHERD_OK);
        cr_assert_eq(memcmp(room.values, values + done, (size_t)block->form.count * sizeof *values), 0);
        done += block->form.count;
    }
    cr_assert_eq(done, count);
    cr_assert_str_eq(file->index.blocks[file->index.count - 1].state, "exp_avg");
    shd_rank_file_close(file);
}

Test(checkpoint_file, gives_back_values_of_every_count) {
    char *folder = make_folder();
    static const int64_t counts[] = {0, 1, 17, 17 * 257, (1 << 20) - 1, 1 << 20, (2 << 20) + 17};
    for (int32_t compression = 0; compression <= 1; compression++)
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            void *mark = mark_taken();
            check_round_trip(folder, compression, counts[i]);
            release_taken(mark);
        }
    remove_folder(folder);
}

/* Whether the file opens and all of it can be read. */
static sherd_status read_all(const char *path, const block_room *room) {
    shd_rank_file *file = NULL;
    sherd_status status = shd_rank_file_open(path, STEP, RANK, &file);
    for (int64_t i = 0; status == SHERD_OK && i < file->index.count; i++)
        status = shd_rank_file_read(file, i, room->codec, room->stored, room->values);
    if (file) shd_rank_file_close(file);
    return status;
}

Test(checkpoint_file, refuses_every_byte_that_changed) {
    char *folder = make_folder(), *path = file_path(folder);
    block_room room = make_room();
    size_t bytes;
    cr_assert_eq(write_file(folder, 1, 600, make_values(600)), SHERD_OK);
    char *content = read_whole(path, &bytes);
    cr_assert_eq(read_all(path, &room), SHERD_OK, "%s", sherd_last_error());
    int descriptor = open(path, O_WRONLY);
    for (size_t i = 0; i < bytes; i++) {
        char changed = (char)(content[i] ^ 1 << i % 8);
        cr_assert_eq(pwrite(descriptor, &changed, 1, (off_t)i), 1);
        cr_assert_eq(read_all(path, &room), SHERD_DATA, "byte %zu", i);
        cr_assert(strstr(sherd_last_error(), path), "%s", sherd_last_error());
        cr_assert_eq(pwrite(descriptor, &content[i], 1, (off_t)i), 1);
    }
    close(descriptor);
    cr_assert_eq(read_all(path, &room), SHERD_OK);
    remove_folder(folder);
}

Test(checkpoint_file, refuses_every_other_length) {
    char *folder = make_folder(), *path = file_path(folder);
    block_room room = make_room();
    size_t bytes;
    cr_assert_eq(write_file(folder, 1, 6000, make_values(6000)), SHERD_OK);
    char *content = read_whole(path, &bytes), *longer = take(bytes + 8192);
    memcpy(longer, content, bytes);
    memset(longer + bytes, 0, 8192);
    for (size_t length = 0; length <= bytes + 8192; length++) {
        size_t page = length % 4096;
        if (length == bytes || (page > 1 && page < 4095 && page != 512)) continue;
        write_whole(path, longer, length);
        cr_assert_eq(read_all(path, &room), SHERD_DATA, "%zu of %zu bytes", length, bytes);
    }
    remove_folder(folder);
}

Test(checkpoint_file, names_the_damaged_block) {
    char *folder = make_folder(), *path = file_path(folder), expected[4200];
    block_room room = make_room();
    cr_assert_eq(write_file(folder, 0, (1 << 20) + 5, make_values((1 << 20) + 5)), SHERD_OK);
    int descriptor = open(path, O_WRONLY);
    cr_assert_eq(pwrite(descriptor, "?", 1, 4096 + (4 << 20) + 7), 1);
    close(descriptor);
    cr_assert_eq(read_all(path, &room), SHERD_DATA);
    snprintf(expected, sizeof expected, "%s is damaged: parameter of tensor w, elements 1048587 to 1048592: ", path);
    cr_assert_eq(strncmp(sherd_last_error(), expected, strlen(expected)), 0, "%s", sherd_last_error());
    remove_folder(folder);
}

static void expect_refused(const char *path, int64_t step, int32_t rank, const char *cause) {
    shd_rank_file *file = NULL;
    cr_assert_eq(shd_rank_file_open(path, step, rank, &file), SHERD_DATA);
    cr_assert(strstr(sherd_last_error(), cause) && strstr(sherd_last_error(), path), "%s", sherd_last_error());
}

Test(checkpoint_file, is_refused_as_another_steps_or_ranks) {
    char *folder = make_folder(), *path = file_path(folder);
    cr_assert_eq(write_file(folder, 0, 5, make_values(5)), SHERD_OK);
    expect_refused(path, STEP + 1, RANK, "rank 3's file of step 1200, not rank 3's of step 1201");
    expect_refused(path, STEP, RANK + 1, "not rank 4's of step 1200");
    remove_folder(folder);
}

Test(checkpoint_file, is_refused_by_the_number_of_another_version) {
    char *folder = make_folder(), *path = file_path(folder);
    cr_assert_eq(write_file(folder, 0, 5, make_values(5)), SHERD_OK);
    size_t bytes;
    char *content = read_whole(path, &bytes);
    content[8] = 3;
    write_whole(path, content, bytes);
    expect_refused(path, STEP, RANK, "version 3 of the format; this build reads version 2");
    memcpy(content, "SHERDRNK", 8);
    write_whole(path, content, bytes);
    expect_refused(path, STEP, RANK, "version 1 of the format; this build reads version 2");
    memcpy(content, "SHERDxxx", 8);
    write_whole(path, content, bytes);
    expect_refused(path, STEP, RANK, "no rank file");
    remove_folder(folder);
}

Test(checkpoint_file, that_may_grow_no_further_is_a_failure_and_no_signal) {
    char *folder = make_folder();
    float *values = make_values(1 << 20);
    static const int64_t counts[] = {1 << 20, 1000};
    for (int i = 0; i < 2; i++) {
        struct rlimit limit = {.rlim_cur = i == 0 ? (1 << 20) + 17 : 4096 * 3, .rlim_max = RLIM_INFINITY};
        cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
        sherd_status status = write_file(folder, 0, counts[i], values);
        limit.rlim_cur = RLIM_INFINITY;
        setrlimit(RLIMIT_FSIZE, &limit);
        cr_assert_eq(status, SHERD_IO);
        cr_assert(strstr(sherd_last_error(), file_path(folder)) && strstr(sherd_last_error(), "File too large"), "%s",
                  sherd_last_error());
        cr_assert_eq(count_files(folder), 0, "what cannot be finished goes");
    }
    remove_folder(folder);
}

Test(checkpoint_file, that_was_removed_or_replaced_meanwhile_is_not_finished) {
    char *folder = make_folder(), *path = file_path(folder);
    float one = 1;
    for (int replaced = 0; replaced <= 1; replaced++) {
        shd_appender *appender = NULL;
        cr_assert_eq(shd_appender_create(folder, STEP, RANK, 0, &appender), SHERD_OK);
        cr_assert_eq(shd_appender_add(appender, "w", "parameter", 0, 1, SHERD_FP32, &one), SHERD_OK);
        unlink(path);
        if (replaced) write_whole(path, "another", 7);
        cr_assert_eq(shd_appender_finish(appender), SHERD_IO);
        cr_assert(strstr(sherd_last_error(), "removed or replaced"), "%s", sherd_last_error());
        shd_appender_destroy(appender);
        cr_assert_eq(count_files(folder), replaced, "another's file stays");
    }
    remove_folder(folder);
}

Test(checkpoint_file, fails_with_the_path_where_there_is_no_folder) {
    char *folder = path_in(make_folder(), "missing");
    cr_assert_eq(write_file(folder, 0, 0, NULL), SHERD_IO);
    cr_assert(strstr(sherd_last_error(), file_path(folder)), "%s", sherd_last_error());
}

Test(checkpoint_file, is_locked_as_somebodys_until_it_is_closed) {
    char *folder = make_folder(), *path = file_path(folder);
    shd_rank_file_maker maker;
    cr_assert_eq(shd_rank_file_create(&maker, path, STEP, RANK), SHERD_OK);
    int other = open(path, O_RDONLY);
    cr_assert_neq(flock(other, LOCK_EX | LOCK_NB), 0);
    shd_index none = {0};
    cr_assert_eq(shd_rank_file_finish(&maker, &none), SHERD_OK);
    cr_assert_neq(flock(other, LOCK_EX | LOCK_NB), 0);
    shd_rank_file_maker_close(&maker);
    cr_assert_eq(flock(other, LOCK_EX | LOCK_NB), 0);
    close(other);
    cr_assert_eq(count_files(folder), 1);
    remove_folder(folder);
}

/* /tmp is on a disk more often than make_folder's place, and disks ask for alignment. */
Test(file, that_was_opened_past_the_page_cache_takes_unaligned_calls_too) {
    char path[] = "/tmp/sherd-test-XXXXXX", *from = take(20000), *to = take(20000);
    int descriptor = mkstemp(path);
    int64_t bytes;
    cr_assert(descriptor >= 0);
    close(descriptor);
    for (int i = 0; i < 20000; i++) from[i] = (char)(i * 7);
    cr_assert_eq(shd_file_create_direct(path, &descriptor), SHERD_OK);
    cr_assert_eq(shd_file_write_at(descriptor, path, 0, from + 1, 9999), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(shd_file_write_at(descriptor, path, 9999, from + 10000, 3), SHERD_OK, "%s", sherd_last_error());
    shd_file_close(descriptor);
    cr_assert_eq(shd_file_open_direct(path, &descriptor, &bytes), SHERD_OK);
    cr_assert_eq(bytes, 10002);
    cr_assert_eq(shd_file_read(descriptor, path, 1, to + 2, 10001), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(memcmp(to + 2, from + 2, 10001), 0);
    cr_assert_eq(shd_file_read(descriptor, path, 10000, to, 3), SHERD_DATA);
    shd_file_close(descriptor);
    unlink(path);
}
