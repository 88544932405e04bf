#include "io/checkpoint_file.h"
#include "io/checkpoint_writer.h"
#include "runtime/base/dtype.h"
#include "runtime/base/memory.h"
#include "tests/io/files.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sherd/status.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

enum { STEP = 7, RANK = 2, SLICES = 9, TICKETS = 4 };

/* What a rank stores: several types and sizes, the last but one of more than two blocks. */
typedef struct rank_store {
    shd_checkpoint_slice slices[SLICES];
    int64_t ticket_ends[TICKETS];
    void *copies[SLICES]; /* of the values */
    void *memory;
    int32_t threads, compression;
} rank_store;

static void *page_room(int64_t bytes) {
    char *memory = take((size_t)bytes + SHD_BLOCK_ALIGN_BYTES);
    return memory + (SHD_BLOCK_ALIGN_BYTES - (uintptr_t)memory % SHD_BLOCK_ALIGN_BYTES);
}

static void fill(void *values, int64_t bytes, uint32_t random) {
    unsigned char *to = values;
    for (int64_t i = 0; i < bytes; i++) {
        random = random * 1664525 + 1013904223;
        to[i] = (unsigned char)(i % 4 == 3 ? 0x3f : random >> 24); /* compresses, but not to nothing */
    }
}

static rank_store make_store(int32_t threads, int32_t compression) {
    rank_store made = {
        .slices = {{"a", "parameter", 0, 0, NULL, SHERD_FP32},
                   {"b", "parameter", 5, 1, NULL, SHERD_FP32},
                   {"b", "exp_avg", 5, 1, NULL, SHERD_FP32},
                   {"c", "parameter", 100, 17, NULL, SHERD_BF16},
                   {"d", "parameter", 0, 17 * 257, NULL, SHERD_FP16},
                   {"e", "parameter", 3, 17 * 257, NULL, SHERD_FP32},
                   {"e", "exp_avg", 256, 17 * 257, NULL, SHERD_INT8},
                   {"f", "parameter", 9, (2 << 20) + 17, NULL, SHERD_FP32},
                   {"f", "exp_avg", 0, (5 << 20), NULL, SHERD_INT8}},
        .ticket_ends = {3, 3, 7, SLICES},
        .threads = threads,
        .compression = compression,
    };
    for (int i = 0; i < SLICES; i++) {
        int64_t bytes = shd_span_bytes(made.slices[i].dtype, made.slices[i].count);
        made.slices[i].values = take((size_t)bytes + 1);
        made.copies[i] = take((size_t)bytes + 1);
        fill(made.slices[i].values, bytes, (uint32_t)i);
        memcpy(made.copies[i], made.slices[i].values, (size_t)bytes);
    }
    made.memory = page_room(shd_writer_memory_bytes(compression, threads));
    return made;
}

static shd_writer *make_writer(const rank_store *store) {
    shd_writer *writer = NULL;
    shd_writer_config config = {.slices = store->slices,
                                .slice_count = SLICES,
                                .ticket_ends = store->ticket_ends,
                                .ticket_count = TICKETS,
                                .compression = store->compression,
                                .threads = store->threads,
                                .memory = store->memory};
    cr_assert_eq(shd_writer_create(&config, &writer), SHERD_OK, "%s", sherd_last_error());
    return writer;
}

static sherd_status save(shd_writer *writer, const char *folder) {
    shd_writer_begin(writer, folder, STEP, RANK);
    for (int32_t t = TICKETS; t-- > 0;) shd_writer_submit(writer, t);
    shd_writer_finish(writer);
    shd_writer_wait(writer);
    return shd_writer_result(writer);
}

/* Checks that the file has every value of the store once. */
static void expect_stored(const rank_store *store, const char *folder) {
    char path[SHD_PATH_BYTES];
    shd_rank_file *file = NULL;
    int64_t seen[SLICES] = {0}, codec_bytes = shd_block_codec_bytes(0);
    char *room = page_room(codec_bytes + 2 * SHD_BLOCK_RAW_BYTES_MAX);
    shd_block_codec *codec = shd_block_codec_init(room, 0);
    char *stored = room + codec_bytes, *values = stored + SHD_BLOCK_RAW_BYTES_MAX;
    cr_assert_eq(shd_rank_file_path(path, folder, RANK), SHERD_OK);
    cr_assert_eq(shd_rank_file_open(path, STEP, RANK, &file), SHERD_OK, "%s", sherd_last_error());
    for (int64_t i = 0; i < file->index.count; i++) {
        const shd_file_block *block = &file->index.blocks[i];
        int s = 0;
        while (s < SLICES && (strcmp(store->slices[s].tensor, block->tensor) != 0 ||
                              strcmp(store->slices[s].state, block->state) != 0))
            s++;
        cr_assert_lt(s, SLICES);
        const shd_checkpoint_slice *slice = &store->slices[s];
        cr_assert_eq(block->form.dtype, slice->dtype);
        cr_assert(block->first >= slice->first && block->first + block->form.count <= slice->first + slice->count);
        cr_assert_eq(shd_rank_file_read(file, i, codec, stored, values), SHERD_OK, "%s", sherd_last_error());
        const char *expected = (char *)store->copies[s] + shd_span_bytes(slice->dtype, block->first - slice->first);
        cr_assert_eq(memcmp(values, expected, (size_t)shd_span_bytes(slice->dtype, block->form.count)), 0);
        seen[s] += block->form.count;
    }
    for (int s = 0; s < SLICES; s++) cr_assert_eq(seen[s], store->slices[s].count);
    shd_rank_file_close(file);
}

Test(checkpoint_writer, stores_every_value_once_with_any_number_of_threads) {
    for (int32_t threads = 1; threads <= 4; threads *= 2)
        for (int32_t compression = 0; compression <= 1; compression++) {
            void *mark = mark_taken();
            char *above = make_folder(), *parent = path_in(above, "new"), *folder = path_in(parent, "partial");
            rank_store store = make_store(threads, compression);
            shd_writer *writer = make_writer(&store);
            cr_assert_eq(save(writer, folder), SHERD_OK, "%s", sherd_last_error());
            cr_assert_eq(shd_writer_state_of(writer), SHD_WRITER_WRITTEN);
            shd_writer_close(writer);
            cr_assert_eq(shd_writer_state_of(writer), SHD_WRITER_IDLE);
            expect_stored(&store, folder);
            shd_writer_destroy(writer);
            expect_stored(&store, folder);
            remove_folder(folder);
            remove_folder(parent);
            remove_folder(above);
            release_taken(mark);
        }
}

static void await_ticket(const shd_writer *writer, int32_t ticket) {
    while (!shd_writer_done(writer, ticket)) sched_yield();
}

Test(checkpoint_writer, gives_each_ticket_back_as_soon_as_it_is_encoded) {
    for (int32_t threads = 1; threads <= 2; threads++) {
        char *folder = make_folder();
        rank_store store = make_store(threads, 1);
        shd_writer *writer = make_writer(&store);
        shd_writer_begin(writer, folder, STEP, RANK);
        for (int32_t t = 0; t < TICKETS; t++) {
            cr_assert_not(shd_writer_done(writer, t));
            shd_writer_submit(writer, t);
            await_ticket(writer, t);
            for (int64_t i = t > 0 ? store.ticket_ends[t - 1] : 0; i < store.ticket_ends[t]; i++)
                memset(store.slices[i].values, 0xee,
                       (size_t)shd_span_bytes(store.slices[i].dtype, store.slices[i].count));
        }
        cr_assert_eq(shd_writer_state_of(writer), SHD_WRITER_WRITING);
        shd_writer_finish(writer);
        shd_writer_wait(writer);
        cr_assert_eq(shd_writer_result(writer), SHERD_OK, "%s", sherd_last_error());
        expect_stored(&store, folder);
        shd_writer_destroy(writer);
        remove_folder(folder);
    }
}

Test(checkpoint_writer, writes_tickets_in_the_order_of_submission) {
    char *folder = make_folder(), path[SHD_PATH_BYTES];
    rank_store store = make_store(1, 0);
    shd_writer *writer = make_writer(&store);
    cr_assert_eq(save(writer, folder), SHERD_OK); /* last ticket first */
    shd_writer_destroy(writer);
    shd_rank_file *file = NULL;
    cr_assert_eq(shd_rank_file_path(path, folder, RANK), SHERD_OK);
    cr_assert_eq(shd_rank_file_open(path, STEP, RANK, &file), SHERD_OK);
    static const char *const order[] = {"f", "f", "f", "f", "f", "c", "d", "e", "e", "b", "b"};
    cr_assert_eq(file->index.count, 11);
    for (int i = 0; i < 11; i++) cr_assert_str_eq(file->index.blocks[i].tensor, order[i]);
    shd_rank_file_close(file);
    remove_folder(folder);
}

Test(checkpoint_writer, tells_how_much_it_wrote) {
    char *folder = make_folder();
    rank_store store = make_store(2, 1);
    shd_writer *writer = make_writer(&store);
    int64_t raw_bytes = 0;
    for (int i = 0; i < SLICES; i++) raw_bytes += shd_span_bytes(store.slices[i].dtype, store.slices[i].count);
    cr_assert_eq(save(writer, folder), SHERD_OK);
    shd_writer_totals totals = shd_writer_totals_of(writer);
    cr_assert_eq(totals.raw_bytes, raw_bytes);
    size_t bytes;
    read_whole(path_in(folder, "rank-00002.bin"), &bytes);
    cr_assert_eq(totals.file_bytes, (int64_t)bytes);
    cr_assert(totals.file_bytes < raw_bytes * 9 / 10, "a quarter of all bytes is the same");
    cr_assert(totals.cpu_ns > 0 && totals.wall_ns > 0);
    shd_writer_destroy(writer);
    remove_folder(folder);
}

/* Whether somebody else could take `path` for nobody's. */
static bool is_free(const char *path) {
    int descriptor = open(path, O_RDONLY);
    cr_assert(descriptor >= 0);
    bool locked = flock(descriptor, LOCK_EX | LOCK_NB) != 0;
    close(descriptor);
    return !locked;
}

Test(checkpoint_writer, keeps_file_and_folder_locked_until_it_is_closed) {
    char *folder = make_folder(), *file = path_in(folder, "rank-00002.bin");
    rank_store store = make_store(1, 0);
    shd_writer *writer = make_writer(&store);
    cr_assert_eq(save(writer, folder), SHERD_OK);
    cr_assert(!is_free(folder) && !is_free(file));
    shd_writer_close(writer);
    cr_assert(is_free(folder) && is_free(file));
    shd_writer_destroy(writer);
    remove_folder(folder);
}

static int64_t count_entries(const char *folder) {
    int64_t count = 0;
    DIR *listing = opendir(folder);
    while (readdir(listing)) count++;
    closedir(listing);
    return count;
}

static int64_t resident_bytes(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    cr_assert_eq(fscanf(file, "%*d %ld", &pages), 1);
    fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

Test(checkpoint_writer, saves_300_times_with_flat_memory_threads_and_descriptors) {
    char *folder = make_folder();
    rank_store store = make_store(2, 0);
    for (int i = 0; i < SLICES; i++)
        store.slices[i].count = store.slices[i].count > 20000 ? 256 : store.slices[i].count;
    shd_writer *writer = make_writer(&store);
    int64_t threads = 0, descriptors = 0, bytes = 0, held = 0;
    for (int i = 0; i < 300; i++) {
        memset(store.memory, i, (size_t)shd_writer_memory_bytes(0, 2)); /* others use the room between saves */
        cr_assert_eq(save(writer, folder), SHERD_OK, "%s", sherd_last_error());
        shd_writer_close(writer);
        if (i == 20) {
            threads = count_entries("/proc/self/task");
            descriptors = count_entries("/proc/self/fd");
            bytes = resident_bytes();
            held = shd_memory_held(SHD_MEMORY_OBJECTS);
        }
    }
    cr_assert_eq(count_entries("/proc/self/task"), threads);
    cr_assert_eq(count_entries("/proc/self/fd"), descriptors);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), held);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) /* which keep what is freed */
    cr_assert_lt(resident_bytes(), bytes + (1 << 20));
#else
    (void)bytes;
#endif
    expect_stored(&store, folder);
    shd_writer_destroy(writer);
    remove_folder(folder);
}

Test(checkpoint_writer, allocates_nothing_while_it_writes) {
    char *folder = make_folder();
    rank_store store = make_store(2, 1);
    shd_writer *writer = make_writer(&store);
    int64_t calls = shd_memory_calls();
    shd_writer_begin(writer, folder, STEP, RANK);
    for (int32_t t = 0; t < TICKETS; t++) shd_writer_submit(writer, t);
    for (int32_t t = 0; t < TICKETS; t++) await_ticket(writer, t);
    cr_assert_eq(shd_memory_calls(), calls);
    shd_writer_finish(writer);
    shd_writer_wait(writer);
    cr_assert_eq(shd_writer_result(writer), SHERD_OK);
    shd_writer_destroy(writer);
    remove_folder(folder);
}

/* A save that must fail with `cause` and the folder's path; then the writer saves where it can. */
static void expect_failure(shd_writer *writer, const rank_store *store, const char *folder, const char *cause) {
    shd_writer_wait(writer);
    for (int32_t t = 0; t < TICKETS; t++) cr_assert(shd_writer_done(writer, t));
    cr_assert_eq(shd_writer_state_of(writer), SHD_WRITER_FAILED);
    for (int again = 0; again < 2; again++) {
        cr_assert_eq(shd_writer_result(writer), SHERD_IO);
        cr_assert(strstr(sherd_last_error(), folder) && strstr(sherd_last_error(), cause), "%s", sherd_last_error());
    }
    shd_writer_close(writer);
    char *other = make_folder();
    cr_assert_eq(save(writer, other), SHERD_OK, "%s", sherd_last_error());
    shd_writer_close(writer);
    expect_stored(store, other);
    remove_folder(other);
}

Test(checkpoint_writer, fails_where_no_folder_can_be_and_then_goes_on) {
    char *folder = make_folder(), *file = path_in(folder, "file");
    write_whole(file, "x", 1);
    rank_store store = make_store(2, 0);
    shd_writer *writer = make_writer(&store);
    shd_writer_begin(writer, file, STEP, RANK);
    for (int32_t t = 0; t < TICKETS; t++) shd_writer_submit(writer, t);
    shd_writer_finish(writer);
    expect_failure(writer, &store, file, "a file has this name");
    shd_writer_destroy(writer);
    remove_folder(folder);
}

Test(checkpoint_writer, takes_tickets_after_a_failure_and_gives_them_back_at_once) {
    char *folder = make_folder(), *file = path_in(folder, "file");
    write_whole(file, "x", 1);
    rank_store store = make_store(1, 0);
    shd_writer *writer = make_writer(&store);
    shd_writer_begin(writer, file, STEP, RANK);
    while (shd_writer_state_of(writer) == SHD_WRITER_WRITING) sched_yield();
    for (int32_t t = 0; t < TICKETS; t++) {
        shd_writer_submit(writer, t);
        cr_assert(shd_writer_done(writer, t));
    }
    shd_writer_finish(writer);
    expect_failure(writer, &store, file, "a file has this name");
    shd_writer_destroy(writer);
    remove_folder(folder);
}

Test(checkpoint_writer, of_a_file_that_may_grow_no_further_fails_and_lives) {
    for (int32_t threads = 1; threads <= 4; threads++) {
        char *folder = make_folder();
        rank_store store = make_store(threads, 0);
        shd_writer *writer = make_writer(&store);
        struct rlimit limit = {.rlim_cur = 5 << 20, .rlim_max = RLIM_INFINITY};
        cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
        shd_writer_begin(writer, folder, STEP, RANK);
        for (int32_t t = 0; t < TICKETS; t++) shd_writer_submit(writer, t);
        shd_writer_finish(writer);
        shd_writer_wait(writer);
        limit.rlim_cur = RLIM_INFINITY;
        setrlimit(RLIMIT_FSIZE, &limit);
        cr_assert_eq(count_files(folder), 0, "the file in the making is gone");
        expect_failure(writer, &store, folder, "File too large");
        shd_writer_destroy(writer);
        remove_folder(folder);
    }
}

/* A file system of `bytes` on `folder`, for this process alone; false where that is not permitted. */
static bool mount_small(const char *folder, int64_t bytes) {
    char size[40];
    snprintf(size, sizeof size, "size=%lld", (long long)bytes);
    return unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("tmpfs", folder, "tmpfs", 0, size) == 0;
}

Test(checkpoint_writer, of_a_full_disk_fails_with_the_path_and_leaves_it_as_it_was) {
    char *folder = make_folder();
    if (!mount_small(folder, 6 << 20)) cr_skip_test("mounting is not permitted here");
    rank_store store = make_store(2, 0);
    shd_writer *writer = make_writer(&store);
    cr_assert_eq(save(writer, folder), SHERD_IO);
    cr_assert_eq(count_files(folder), 0, "the file in the making is gone");
    expect_failure(writer, &store, folder, "No space left on device");
    shd_writer_destroy(writer);
    cr_assert_eq(umount(folder), 0, "nothing of it is open");
    remove_folder(folder);
}

Test(checkpoint_writer, fails_when_its_folder_is_removed_meanwhile) {
    char *folder = make_folder(), *inner = path_in(folder, "inner");
    rank_store store = make_store(2, 1);
    shd_writer *writer = make_writer(&store);
    shd_writer_begin(writer, inner, STEP, RANK);
    for (int32_t t = 0; t < TICKETS - 1; t++) shd_writer_submit(writer, t);
    while (access(path_in(inner, "rank-00002.bin"), F_OK) != 0) sched_yield();
    remove_folder(inner);
    shd_writer_submit(writer, TICKETS - 1);
    shd_writer_finish(writer);
    expect_failure(writer, &store, inner, "removed or replaced");
    shd_writer_destroy(writer);
    remove_folder(folder);
}

Test(checkpoint_writer, fails_with_a_path_that_is_too_long) {
    char *folder = take(2 * SHD_PATH_BYTES);
    memset(folder, 'x', 2 * SHD_PATH_BYTES - 1);
    folder[2 * SHD_PATH_BYTES - 1] = 0;
    rank_store store = make_store(1, 0);
    shd_writer *writer = make_writer(&store);
    cr_assert_eq(save(writer, folder), SHERD_ARGUMENT);
    cr_assert(strstr(sherd_last_error(), "too long"), "%s", sherd_last_error());
    shd_writer_destroy(writer);
}

Test(checkpoint_writer, that_is_destroyed_removes_what_it_has_not_finished, .timeout = 20) {
    for (int tickets = 0; tickets <= TICKETS; tickets++)
        for (int32_t threads = 1; threads <= 2; threads++) {
            char *folder = make_folder();
            rank_store store = make_store(threads, 1);
            shd_writer *writer = make_writer(&store);
            shd_writer_begin(writer, folder, STEP, RANK);
            for (int32_t t = 0; t < tickets; t++) shd_writer_submit(writer, t);
            shd_writer_destroy(writer);
            cr_assert_eq(count_files(folder), 0);
            remove_folder(folder);
        }
    shd_writer_destroy(NULL);
}

#ifndef __SANITIZE_THREAD__ /* which keeps masks of its own */
/* Threads of this process that block SIGTERM and SIGXFSZ. */
static int count_blocking(void) {
    DIR *listing = opendir("/proc/self/task");
    int blocking = 0;
    for (struct dirent *entry; (entry = readdir(listing));) {
        char path[600], line[256];
        unsigned long long mask = 0;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        FILE *status = fopen(path, "r");
        while (status && fgets(line, sizeof line, status)) sscanf(line, "SigBlk: %llx", &mask);
        if (status) fclose(status);
        blocking += (mask & 1ull << (SIGTERM - 1)) != 0 && (mask & 1ull << (SIGXFSZ - 1)) != 0;
    }
    closedir(listing);
    return blocking;
}

Test(checkpoint_writer, keeps_all_signals_from_its_threads) {
    rank_store store = make_store(3, 0);
    int before = count_blocking(); /* the test runner's */
    shd_writer *writer = make_writer(&store);
    cr_assert_eq(count_blocking() - before, 3);
    shd_writer_destroy(writer);
}
#endif

Test(checkpoint_writer, refuses_slices_that_cannot_be_stored) {
    static const shd_checkpoint_slice bad[] = {
        {"w", "parameter", 0, 5, NULL, SHERD_INT8},  {"w", "exp_avg", 0, 5, NULL, SHERD_BF16},
        {"w", "exp_avg", 0, 5, NULL, SHERD_FP16},    {"w", "exp_avg", 128, 5, NULL, SHERD_INT8},
        {"w", "parameter", -1, 5, NULL, SHERD_FP32}, {"w", "parameter", 0, -1, NULL, SHERD_FP32}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int64_t ends[] = {1};
        shd_writer *writer = NULL;
        shd_writer_config config = {
            .slices = &bad[i], .slice_count = 1, .ticket_ends = ends, .ticket_count = 1, .threads = 1};
        cr_assert_eq(shd_writer_create(&config, &writer), SHERD_ARGUMENT);
        cr_assert(strstr(sherd_last_error(), "tensor w"), "%s", sherd_last_error());
    }
}
