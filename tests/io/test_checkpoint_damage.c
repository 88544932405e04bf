/* Files that are not what was written: every bit, every length, files of others, manifests made up. */
#include "checkpoints.h"
#include "io/checkpoint_file1.h"
#include "runtime/base/memory.h"
#include "runtime/base/random.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

static const small_job saved = {.step = 3, .world_size = 2, .seed = 5};

/* Loading must refuse with DATA and name `file`. */
static void expect_refusal(const small_job *job, const char *file, const char *what, size_t where) {
    bool equal;
    sherd_status status = load_job(job, &equal);
    cr_assert_eq(status, SHERD_DATA, "%s at %zu: loaded (%d)", what, where, status);
    cr_assert(strstr(sherd_last_error(), file), "%s at %zu: \"%s\" does not name %s", what, where, sherd_last_error(),
              file);
}

static void expect_whole(const small_job *job) {
    bool equal;
    cr_assert_eq(load_job(job, &equal), SHERD_OK, "%s", sherd_last_error());
    cr_assert(equal);
}

static void damage_every_byte(const char *name) {
    char *folder = make_folder();
    small_job job = saved;
    job.parent = folder;
    cr_assert_eq(save_job(&job), SHERD_OK);
    char *path = path_in(job_path(&job), name);
    size_t bytes;
    char *content = read_whole(path, &bytes);
    cr_assert_gt(bytes, 500);
    for (size_t at = 0; at < bytes; at++)
        for (int bit = 0; bit < 8; bit++) {
            content[at] ^= (char)(1 << bit);
            write_whole(path, content, bytes);
            expect_refusal(&job, name, "flipped bit", at);
            content[at] ^= (char)(1 << bit);
        }
    write_whole(path, content, bytes);
    expect_whole(&job);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
    remove_folder(folder);
}

Test(checkpoint_damage, every_flipped_bit_of_a_rank_file_is_noticed) { damage_every_byte("rank-00001.bin"); }
Test(checkpoint_damage, every_flipped_bit_of_the_manifest_is_noticed) { damage_every_byte("manifest.json"); }

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
        content = memcpy(take(bytes + 40), content, bytes);
        memset(content + bytes, i ? '\n' : 0, 40);
        for (size_t length = 0; length < bytes + 40; length++) {
            write_whole(path, content, length);
            if (length != bytes) expect_refusal(&job, names[i], "length", length);
        }
        write_whole(path, content, bytes);
        expect_whole(&job);
    }
    remove_folder(folder);
}

Test(checkpoint_damage, an_export_of_damaged_values_fails_and_leaves_the_old_file) {
    char *folder = make_folder(), *to = path_in(folder, "model.safetensors");
    small_job job = saved;
    job.parent = folder;
    cr_assert_eq(save_job(&job), SHERD_OK);
    cr_assert_eq(shd_checkpoint_export(folder, to), SHERD_OK);
    size_t bytes, before_bytes, after_bytes;
    char *before = read_whole(to, &before_bytes), *path = path_in(job_path(&job), "rank-00001.bin");
    char *content = read_whole(path, &bytes);
    /* The first slice is a parameter; its values begin at the first multiple of 64 after the header. */
    size_t header_bytes = (unsigned char)content[8] + 256u * (unsigned char)content[9];
    content[24 + header_bytes + 8] ^= 1;
    write_whole(path, content, bytes);
    cr_assert_eq(shd_checkpoint_export(folder, to), SHERD_DATA);
    cr_assert(strstr(sherd_last_error(),
                     "rank-00001.bin is damaged: the checksum of parameter of tensor wte.weight, elements 43 to 85"),
              "%s", sherd_last_error());
    char *after = read_whole(to, &after_bytes);
    cr_assert(after_bytes == before_bytes && memcmp(before, after, after_bytes) == 0);
    cr_assert_eq(count_files(folder), 2);
    remove_folder(folder);
}

Test(checkpoint_damage, files_of_another_rank_or_run_are_refused) {
    char *folder = make_folder();
    small_job job = saved, other = saved, later = saved;
    job.parent = path_in(folder, "a"), other.parent = path_in(folder, "b"), later.parent = path_in(folder, "c");
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
    remove_folder(folder);
}

/* Closes `body` (the text before the seal) as a manifest is closed. */
static void write_sealed(const char *path, const char *body) {
    size_t length = strlen(body);
    void *mark = mark_taken();
    char *text = take(length + 64);
    int seal = snprintf(text, length + 64, "%s,\n  \"xxh3\": \"%016llx\"\n}\n", body,
                        (unsigned long long)XXH3_64bits(body, length));
    write_whole(path, text, (size_t)seal);
    release_taken(mark);
}

static char *read_body(const char *path) {
    size_t bytes;
    char *text = read_whole(path, &bytes);
    text[bytes - 33] = 0;
    return text;
}

Test(checkpoint_damage, a_sealed_manifest_that_makes_no_sense_is_refused) {
    static const struct {
        const char *from, *to, *says;
    } rows[] = {
        {"\"version\": 1", "\"version\": 3", "\"version\" must be an integer from 1 to 1"},
        {"\"step\": 3", "\"step\": -3", "\"step\""},
        {"\"step\": 3", "\"step\": 4", "renamed"},
        {"\"step\": 3", "\"step\": 3.0", "\"step\""},
        {"\"world_size\": 2", "\"world_size\": 0", "\"world_size\""},
        {"\"world_size\": 2", "\"world_size\": 1", "2 files for 1 ranks"},
        {"\"world_size\": 2", "\"world_size\": 99999999999", "\"world_size\""},
        {"\"stage\": 3", "\"stage\": 4", "\"stage\""},
        {"\"fedcba9876543210\"", "\"FEDCBA9876543210\"", "\"layout\" must be 16 hexadecimal digits"},
        {"\"fedcba9876543210\"", "7", "\"layout\""},
        {"\"name\": \"adamw\"", "\"name\": null", "\"name\" must be a text"},
        {"\"optimizer\": {", "\"optimizer\": 1, \"x\": {", "\"name\" must be a text"},
        {"\"exp_avg\",", "1,", "\"states\" must be a list of texts"},
        {"17,", "-17,", "the shape of tensor wte.weight"},
        {"17,", "4611686018427387904,", "the shape of tensor wte.weight"},
        {"17,", "1, 1, 1, 1, 17,", "more than 4 dimensions"},
        {"\"frozen\": true", "\"frozen\": 1", "\"frozen\" must be true or false"},
        {"rank-00001.bin", "../../etc/pass", "the file of rank 1 is called"},
        {"\"bytes\": ", "\"bytes\": -", "\"bytes\""},
        {"\"bytes\": ", "\"bytes\": 1", "the manifest says"},
        {"\"note\": {", "\"note\": 1, \"y\": {", "\"note\" must be an object"},
        {"\"step\": 3", "\"step\": 3, \"step\": 3", "duplicate"},
        {"{", "[", "JSON"},
    };
    char *folder = make_folder();
    small_job job = saved;
    job.parent = folder;
    cr_assert_eq(save_job(&job), SHERD_OK);
    char *path = path_in(job_path(&job), "manifest.json"), *good = read_body(path);
    write_sealed(path, good);
    expect_whole(&job); /* so the seal below is right, and what follows is refused for its content */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *at = strstr(good, rows[i].from), *bad = take(strlen(good) + 100);
        cr_assert_not_null(at, "row %zu", i);
        snprintf(bad, strlen(good) + 100, "%.*s%s%s", (int)(at - good), good, rows[i].to, at + strlen(rows[i].from));
        write_sealed(path, bad);
        expect_refusal(&job, "step-00000003", rows[i].to, i);
        cr_assert(strstr(sherd_last_error(), rows[i].says), "row %zu: \"%s\"", i, sherd_last_error());
    }
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
    remove_folder(folder);
}

Test(checkpoint_damage, slices_of_a_sealed_rank_file_end_with_the_file) {
    /* Counts of 12 bytes of values, and what is said; (2^61 - 1) floats end 4 bytes before 2^63, where a slice may not
     * even begin. */
    static const struct {
        long long counts[3];
        const char *says;
    } rows[] = {
        {{3, 0, 0}, NULL},
        {{1, 0, 2}, NULL},
        {{1, 1, 0}, "it holds 12 bytes of values, its header announces 8"},
        {{4, 0, 0}, "slice 0: it would have 4 elements from byte 0 of the values on, which are 12 bytes"},
        {{1, 2, 1}, "slice 2: it would have 1 elements from byte 12"},
        {{(1LL << 61) - 1, 0, 0}, "slice 0: it would have 2305843009213693951 elements"},
        {{1, (1LL << 61) - 1, 0}, "slice 1: it would have 2305843009213693951 elements"},
        {{1LL << 61, 0, 0}, "slice 0: it would have 2305843009213693952 elements"},
        {{INT64_MAX, 0, 0}, "slice 0: it would have 9223372036854775807 elements"},
    };
    char *folder = make_folder(), *path = path_in(folder, "rank-00000.bin");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char file[1024] = "SHERDRNK";
        int64_t length = 24;
        unsigned long long offset = 0;
        length += sprintf(file + length, "{\"version\":1,\"step\":3,\"rank\":0,\"slices\":[");
        for (int s = 0; s < 3; s++) {
            length += sprintf(file + length,
                              "%s{\"tensor\":\"a\",\"state\":\"parameter\",\"first\":0,\"count\":%lld,\"offset\":%lld,"
                              "\"xxh3\":\"0000000000000000\"}",
                              s ? "," : "", rows[i].counts[s], (long long)offset);
            offset += 4ull * (unsigned long long)rows[i].counts[s];
        }
        length += sprintf(file + length, "]}");
        uint64_t header_bytes = (uint64_t)length - 24, hash = XXH3_64bits(file + 24, header_bytes);
        memcpy(file + 8, &header_bytes, 8);
        memcpy(file + 16, &hash, 8);
        write_whole(path, file, (size_t)length + 12);
        shd_rank_file1 *opened = NULL;
        sherd_status status = shd_rank_file1_open(path, 3, 0, &opened);
        cr_expect_eq(status, rows[i].says ? SHERD_DATA : SHERD_OK, "row %zu: %d", i, status);
        if (rows[i].says)
            cr_expect(strstr(sherd_last_error(), rows[i].says), "row %zu: %s", i, sherd_last_error());
        else
            cr_expect_eq(opened->slices[2].offset_bytes + 4 * opened->slices[2].count, length + 12);
        shd_rank_file1_close(opened);
    }
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
    remove_folder(folder);
}

/* Random damage with checksums made right again, so that it reaches what lies behind them. Nothing may crash or
 * leak. */
static void mutate(char *text, size_t bytes, uint64_t round) {
    for (uint64_t hit = 0; hit <= round % 3; hit++) {
        uint32_t r[4];
        shd_philox(13, round, hit, r);
        size_t at = r[0] % bytes;
        if (r[1] % 3 == 0)
            text[at] = "0123456789-[]{},:\"\\e. "[r[2] % 22];
        else if (r[1] % 3 == 1)
            text[at] ^= (char)(1 << r[2] % 7);
        else
            memmove(text + at, text + r[2] % bytes,
                    r[3] % 24 < bytes - at && r[2] % bytes + r[3] % 24 < bytes ? r[3] % 24 : 0);
    }
    for (size_t i = 0; i < bytes; i++)
        if (!text[i]) text[i] = '0';
}

Test(checkpoint_damage, sealed_nonsense_never_crashes) {
    char *folder = make_folder(), *to = path_in(folder, "x");
    small_job job = saved;
    job.parent = folder;
    cr_assert_eq(save_job(&job), SHERD_OK);
    char *manifest = path_in(job_path(&job), "manifest.json"), *body = read_body(manifest),
         *rank = path_in(job_path(&job), "rank-00000.bin");
    size_t body_bytes = strlen(body), bytes, header_bytes;
    char *content = read_whole(rank, &bytes), *bad = take(bytes + body_bytes + 1), *file = take(bytes);
    memcpy(&header_bytes, content + 8, 8);
    int refused = 0;
    for (uint64_t round = 0; round < 3000; round++) {
        bool equal;
        strcpy(bad, body);
        if (round % 2) {
            mutate(bad, body_bytes, round);
        } else {
            /* A rank's header, its hash in the file and in the manifest. */
            char hash[17];
            memcpy(file, content, bytes);
            mutate(file + 24, header_bytes, round);
            uint64_t before, after = XXH3_64bits(file + 24, header_bytes);
            memcpy(&before, file + 16, 8);
            memcpy(file + 16, &after, 8);
            write_whole(rank, file, bytes);
            snprintf(hash, sizeof hash, "%016llx", (unsigned long long)before);
            char *at = strstr(bad, hash);
            cr_assert_not_null(at);
            snprintf(hash, sizeof hash, "%016llx", (unsigned long long)after);
            memcpy(at, hash, 16);
        }
        write_sealed(manifest, bad);
        refused += load_job(&job, &equal) != SHERD_OK;
        (void)shd_checkpoint_export(folder, to);
        write_whole(rank, content, bytes);
    }
    cr_assert_gt(refused, 2000);
    write_sealed(manifest, body);
    expect_whole(&job);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
    remove_folder(folder);
}
