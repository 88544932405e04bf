/* Checkpoints against what bounds them: a rank's writers and readers, beside the same bytes past the page cache without
 * sherd, and beside the codec alone. GB/s are of values, so that all compare: a disk that takes 1 GB/s takes 1.2 of values
 * that shrink to 1/1.2. Every number is the best of some rounds, which take turns, since disks are moody.
 *
 * usage: bench-checkpoint [FOLDER [MEGABYTES [THREADS]]]    of fp32, weights and moments as trained ones are; the folder
 * is to be on the disk that is meant */
#include "io/checkpoint_file.h"
#include "io/checkpoint_reader.h"
#include "io/checkpoint_writer.h"
#include "runtime/base/arith.h"
#include "runtime/base/random.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TENSORS = 3, RANKS_MAX = 2, ROUNDS = 5, BLOCK = SHD_BLOCK_RAW_BYTES_MAX, COUNT_MAX = BLOCK / 4, ROW = 1024 };

static void fail(const char *what) {
    fprintf(stderr, "bench-checkpoint: %s: %s\n", what, sherd_last_error());
    exit(1);
}

static double clock_s(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *memory(int64_t bytes) {
    int64_t rounded = shd_round_up(bytes + 1, SHD_BLOCK_ALIGN_BYTES);
    void *x = aligned_alloc(SHD_BLOCK_ALIGN_BYTES, (size_t)rounded);
    return x ? memset(x, 0, (size_t)rounded) : (fail("no memory"), NULL);
}

/* What each rank has: a third of it weights, first and second moments each. */
typedef struct rank_data {
    shd_checkpoint_slice slices[TENSORS];
    int64_t ticket_ends[1];
    float *values, *back;
    int64_t bytes;
} rank_data;

static void make_rank(rank_data *rank, int32_t index, int64_t count, const float *values, float *back) {
    static const char *const states[TENSORS] = {SHD_CHECKPOINT_PARAMETER, "exp_avg", "exp_avg_sq"};
    *rank =
        (rank_data){.ticket_ends = {TENSORS}, .values = (float *)values, .back = back, .bytes = 4 * TENSORS * count};
    for (int t = 0; t < TENSORS; t++)
        rank->slices[t] =
            (shd_checkpoint_slice){"w", states[t], index * count, count, (float *)values + t * count, SHERD_FP32};
}

static float *make_values(int64_t count) {
    float *values = memory(4 * TENSORS * count);
    for (int t = 0; t < TENSORS; t++)
        for (int64_t row = 0; row < count; row += ROW) {
            float *at = values + t * count + row, scale = 0.02f;
            int64_t length = shd_min(ROW, count - row);
            if (t > 0) scale = 1e-5f * (float)(1 << (row / ROW % 8));
            shd_random_normal((uint64_t)t, row, length, scale, at);
            for (int64_t i = 0; t == 2 && i < length; i++) at[i] *= at[i];
        }
    return values;
}

/* --- what bounds a save and a load -------------------------------------------------------------------------------- */

/* Blocks that threads take in turn. */
typedef struct plain_work {
    const char *values;
    char *stored;
    shd_block_form *forms;
    int64_t block_count, bytes;
    int descriptor;
    int32_t compression;
    enum { PLAIN_WRITE, PLAIN_READ, ENCODE, DECODE } kind;
    atomic_llong next;
} plain_work;

static void work_on(plain_work *work, shd_block_codec *codec, char *room, int64_t block) {
    int64_t offset = block * BLOCK, bytes = shd_min(BLOCK, work->bytes - offset);
    char *stored = work->stored + offset;
    switch (work->kind) {
    case PLAIN_WRITE:
        if (pwrite(work->descriptor, room, (size_t)bytes, offset) != bytes) fail("pwrite");
        break;
    case PLAIN_READ:
        if (pread(work->descriptor, room, (size_t)bytes, offset) != bytes) fail("pread");
        break;
    case ENCODE:
        work->forms[block] = (shd_block_form){.dtype = SHERD_FP32, .count = bytes / 4};
        shd_block_encode(codec, work->values + offset, stored, &work->forms[block]);
        break;
    case DECODE:
        if (shd_block_decode(codec, stored, &work->forms[block], room) != SHERD_OK) fail("decode");
        break;
    }
}

static void *work_all(void *argument) {
    plain_work *work = argument;
    int64_t codec_bytes = shd_block_codec_bytes(work->compression);
    char *room = memory(codec_bytes + BLOCK);
    shd_block_codec *codec = shd_block_codec_init(room, work->compression);
    for (int64_t block; (block = atomic_fetch_add(&work->next, 1)) < work->block_count;)
        work_on(work, codec, room + codec_bytes, block);
    free(room);
    return NULL;
}

/* Seconds of `kind` over all blocks with `threads`. */
static double run_plain(plain_work *work, int kind, int32_t threads) {
    pthread_t started[SHD_WRITER_THREADS_MAX];
    work->kind = kind;
    atomic_store(&work->next, 0);
    double begin = clock_s(CLOCK_MONOTONIC);
    for (int32_t i = 0; i < threads; i++)
        if (pthread_create(&started[i], NULL, work_all, work)) fail("threads");
    for (int32_t i = 0; i < threads; i++) pthread_join(started[i], NULL);
    if (kind == PLAIN_WRITE && fsync(work->descriptor)) fail("fsync");
    return clock_s(CLOCK_MONOTONIC) - begin;
}

static double run_disk(plain_work *work, const char *path, bool reads, int64_t file_bytes, int32_t threads) {
    int64_t raw_bytes = work->bytes, block_count = work->block_count;
    work->bytes = file_bytes;
    work->block_count = shd_div_ceil(file_bytes, BLOCK);
    work->descriptor = open(path, (reads ? O_RDONLY : O_WRONLY | O_CREAT | O_TRUNC) | O_DIRECT, 0666);
    if (work->descriptor < 0) fail("open");
    double seconds = run_plain(work, reads ? PLAIN_READ : PLAIN_WRITE, threads);
    close(work->descriptor);
    work->bytes = raw_bytes;
    work->block_count = block_count;
    return seconds;
}

/* --- sherd -------------------------------------------------------------------------------------------------------- */

typedef struct bench {
    const char *folder;
    rank_data ranks[RANKS_MAX];
    int32_t rank_count, threads, compression;
    shd_writer *writers[RANKS_MAX];
    shd_checkpoint_file files[RANKS_MAX];
    int64_t raw_bytes, file_bytes;
    double write_cpu_s, read_cpu_s;
} bench;

static void create_writers(bench *b) {
    for (int32_t r = 0; r < b->rank_count; r++) {
        shd_writer_config config = {.slices = b->ranks[r].slices,
                                    .slice_count = TENSORS,
                                    .ticket_ends = b->ranks[r].ticket_ends,
                                    .ticket_count = 1,
                                    .compression = b->compression,
                                    .threads = b->threads,
                                    .memory = memory(shd_writer_memory_bytes(b->compression, b->threads))};
        if (shd_writer_create(&config, &b->writers[r]) != SHERD_OK) fail("writer");
    }
}

static double save(bench *b) {
    double begin = clock_s(CLOCK_MONOTONIC);
    for (int32_t r = 0; r < b->rank_count; r++) {
        shd_writer_begin(b->writers[r], b->folder, 1, r);
        shd_writer_submit(b->writers[r], 0);
        shd_writer_finish(b->writers[r]);
    }
    b->file_bytes = 0;
    double cpu_s = 0;
    for (int32_t r = 0; r < b->rank_count; r++) {
        shd_writer_wait(b->writers[r]);
        if (shd_writer_result(b->writers[r]) != SHERD_OK) fail("save");
        shd_writer_totals totals = shd_writer_totals_of(b->writers[r]);
        b->file_bytes += totals.file_bytes;
        cpu_s += 1e-9 * (double)totals.cpu_ns;
    }
    double seconds = clock_s(CLOCK_MONOTONIC) - begin;
    b->write_cpu_s = fmin(b->write_cpu_s, cpu_s);
    for (int32_t r = 0; r < b->rank_count; r++) shd_writer_close(b->writers[r]);
    return seconds;
}

static void describe_files(bench *b) {
    for (int32_t r = 0; r < b->rank_count; r++) {
        char path[SHD_PATH_BYTES];
        shd_rank_file *file = NULL;
        if (shd_rank_file_path(path, b->folder, r) != SHERD_OK || shd_rank_file_open(path, 1, r, &file) != SHERD_OK)
            fail("open");
        b->files[r] = (shd_checkpoint_file){.bytes = file->bytes, .index_hash = file->index_hash};
        shd_rank_file_close(file);
    }
}

typedef struct load_rank {
    const bench *bench;
    int32_t rank;
    void *room;
} load_rank;

static void *load(void *argument) {
    const load_rank *self = argument;
    const bench *b = self->bench;
    const rank_data *rank = &b->ranks[self->rank];
    shd_checkpoint_manifest manifest = {.step = 1, .world_size = b->rank_count, .files = b->files};
    shd_checkpoint_slice wanted[TENSORS];
    shd_reader_config config = {.threads = b->threads, .memory = self->room};
    shd_reader *reader = NULL;
    for (int t = 0; t < TENSORS; t++) {
        wanted[t] = rank->slices[t];
        wanted[t].values = rank->back + t * rank->slices[t].count;
    }
    if (shd_reader_open(b->folder, &manifest, &reader) != SHERD_OK ||
        shd_reader_read(reader, wanted, TENSORS, &config) != SHERD_OK)
        fail("load");
    shd_reader_destroy(reader);
    return NULL;
}

static double load_all(bench *b, void *room[RANKS_MAX]) {
    pthread_t started[RANKS_MAX];
    load_rank ranks[RANKS_MAX];
    double begin = clock_s(CLOCK_MONOTONIC), cpu = clock_s(CLOCK_PROCESS_CPUTIME_ID);
    for (int32_t r = 0; r < b->rank_count; r++) {
        ranks[r] = (load_rank){.bench = b, .rank = r, .room = room[r]};
        if (pthread_create(&started[r], NULL, load, &ranks[r])) fail("threads");
    }
    for (int32_t r = 0; r < b->rank_count; r++) pthread_join(started[r], NULL);
    b->read_cpu_s = fmin(b->read_cpu_s, clock_s(CLOCK_PROCESS_CPUTIME_ID) - cpu);
    return clock_s(CLOCK_MONOTONIC) - begin;
}

static void print_row(const bench *b, const char *what, double disk_s, double codec_s, double seconds, double cpu_s) {
    double disk = 1e-9 * (double)b->raw_bytes / disk_s, codec = 1e-9 * (double)b->raw_bytes / codec_s;
    double own = 1e-9 * (double)b->raw_bytes / seconds;
    printf("%-6s %5d %6d %7d %6.3f %8.2f %8.2f %8.2f %7.0f %% %8.2f\n", what, b->rank_count, b->threads, b->compression,
           (double)b->raw_bytes / (double)b->file_bytes, disk, codec, own, 100 * own / fmin(disk, codec), cpu_s);
    fflush(stdout);
}

static void run(bench *b, plain_work *work) {
    double best[6] = {INFINITY, INFINITY, INFINITY, INFINITY, INFINITY, INFINITY};
    char plain[SHD_PATH_BYTES];
    void *room[RANKS_MAX];
    int32_t all = b->threads * b->rank_count;
    b->write_cpu_s = b->read_cpu_s = INFINITY;
    snprintf(plain, sizeof plain, "%s/plain.bin", b->folder);
    for (int32_t r = 0; r < b->rank_count; r++) room[r] = memory(shd_reader_memory_bytes(b->threads));
    work->compression = b->compression;
    create_writers(b);
    for (int round = 0; round < ROUNDS; round++) {
        best[0] = fmin(best[0], save(b));
        describe_files(b);
        best[1] = fmin(best[1], run_disk(work, plain, false, b->file_bytes, all));
        best[2] = fmin(best[2], run_plain(work, ENCODE, all));
        best[3] = fmin(best[3], load_all(b, room));
        best[4] = fmin(best[4], run_disk(work, plain, true, b->file_bytes, all));
        best[5] = fmin(best[5], run_plain(work, DECODE, all));
    }
    for (int32_t r = 0; r < b->rank_count; r++) {
        if (memcmp(b->ranks[r].back, b->ranks[r].values, (size_t)b->ranks[r].bytes) != 0)
            fail("other values came back");
        shd_writer_destroy(b->writers[r]);
        free(room[r]);
    }
    print_row(b, "save", best[1], best[2], best[0], b->write_cpu_s);
    print_row(b, "load", best[4], best[5], best[3], b->read_cpu_s);
}

static void clean(const char *folder) {
    static const char *const names[] = {"rank-00000.bin", "rank-00001.bin", "plain.bin"};
    char path[SHD_PATH_BYTES];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

int main(int argc, char **argv) {
    int64_t megabytes = argc > 2 ? atoll(argv[2]) : 480;
    int64_t count = shd_round_up(megabytes * 1000000 / (4 * TENSORS), 2 * COUNT_MAX);
    float *values = make_values(count), *back = memory(4 * TENSORS * count);
    char folder[SHD_PATH_BYTES];
    snprintf(folder, sizeof folder, "%s/bench-checkpoint-XXXXXX", argc > 1 ? argv[1] : ".");
    if (!mkdtemp(folder)) fail(folder);
    int64_t bytes = 4 * TENSORS * count;
    plain_work work = {.values = (const char *)values,
                       .stored = memory(bytes),
                       .forms = memory(bytes / BLOCK * (int64_t)sizeof(shd_block_form)),
                       .block_count = bytes / BLOCK,
                       .bytes = bytes};
    printf("%.0f MB of values; GB/s of them\n", 1e-6 * (double)bytes);
    printf("       ranks threads zstd   ratio     disk    codec    sherd of the lesser  CPU s\n");
    for (int32_t compression = 0; compression <= 1; compression++)
        for (int32_t ranks = 1; ranks <= RANKS_MAX; ranks++) {
            bench b = {.folder = folder,
                       .rank_count = ranks,
                       .threads = argc > 3 ? atoi(argv[3]) : 2,
                       .compression = compression,
                       .raw_bytes = bytes};
            for (int32_t r = 0; r < ranks; r++)
                make_rank(&b.ranks[r], r, count / ranks, values + r * (TENSORS * count / ranks),
                          back + r * (TENSORS * count / ranks));
            run(&b, &work);
        }
    clean(folder);
    free(work.stored), free(work.forms), free(back), free(values);
    return 0;
}
