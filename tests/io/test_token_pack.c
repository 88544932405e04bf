#include "io/token_file.h"
#include "io/token_pack.h"
#include "tests/io/make_job.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(token_pack, .init = enter_fresh_folder, .fini = leave_fresh_folder);

/* What the sink was told. */
typedef struct told {
    int count;
    char paths[8][64];
    int64_t tokens[8];
    uint64_t checksums[8];
} told;

static void take(void *user, const char *path, int64_t token_count, uint64_t checksum) {
    told *all = user;
    snprintf(all->paths[all->count], sizeof all->paths[0], "%s", path);
    all->tokens[all->count] = token_count;
    all->checksums[all->count++] = checksum;
}

static sherd_status pack(const char *const *texts, int32_t count, const char *to, int64_t separator,
                         int64_t shard_tokens, told *out) {
    const shd_token_pack packing = {
        .texts = texts, .text_count = count, .to = to, .separator = separator, .shard_tokens = shard_tokens};
    *out = (told){0};
    return shd_token_pack_run(&packing, take, out);
}

/* The file's tokens are `expected`, -1 at the end, and its checksum is that of its bytes and as told. */
static void expect_tokens(const char *path, const int *expected, uint64_t checksum) {
    shd_token_file file;
    shd_token_scan scan;
    uint32_t ids[64];
    cr_assert_eq(shd_token_file_open(path, SHD_FORMAT_AUTO, NULL, &file), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(file.format, SHD_FORMAT_LLMC);
    cr_assert_eq(shd_token_file_read(&file, 0, file.token_count, ids), SHERD_OK);
    for (int64_t i = 0; i < file.token_count; i++) cr_assert_eq((int)ids[i], expected[i], "%s: token %d", path, (int)i);
    cr_assert_eq(expected[file.token_count], -1, "%s: %d tokens", path, (int)file.token_count);
    cr_assert_eq(shd_token_file_scan(&file, &scan), SHERD_OK);
    cr_assert(file.has_checksum && scan.checksum == file.checksum && scan.checksum == checksum);
    shd_token_file_close(&file);
}

Test(token_pack, writes_bytes_as_tokens_with_a_separator_after_every_text) {
    write_file("a.txt", "A\xff", 2);
    write_text("b.txt", "");
    write_text("c.txt", "z");
    const char *const texts[] = {"a.txt", "b.txt", "c.txt"};
    told all;
    cr_assert_eq(pack(texts, 3, "plain.bin", -1, INT32_MAX, &all), SHERD_OK, "%s", sherd_last_error());
    cr_assert(all.count == 1 && all.tokens[0] == 3 && strcmp(all.paths[0], "plain.bin") == 0);
    expect_tokens("plain.bin", (int[]){65, 255, 122, -1}, all.checksums[0]);
    cr_assert_eq(pack(texts, 3, "documents.bin", 50256, INT32_MAX, &all), SHERD_OK);
    expect_tokens("documents.bin", (int[]){65, 255, 50256, 50256, 122, 50256, -1}, all.checksums[0]);
    cr_assert_neq(access("documents.bin.part", F_OK), 0);
    /* The header, as other readers see it. */
    size_t length;
    char *bytes = read_file("plain.bin", &length);
    int32_t words[256];
    cr_assert_eq(length, 1024 + 6);
    memcpy(words, bytes, sizeof words);
    cr_assert(words[0] == 20240520 && words[1] == 1 && words[2] == 3);
    for (int i = 6; i < 256; i++) cr_assert_eq(words[i], 0);
    free(bytes);
}

Test(token_pack, cuts_shards_at_exactly_the_number_asked_for) {
    write_text("a.txt", "abcdefg");
    write_text("b.txt", "hij");
    const char *const texts[] = {"a.txt", "b.txt"};
    told all;
    cr_assert_eq(pack(texts, 2, "s.x/t.bin", -1, 4, &all), SHERD_IO); /* no such folder */
    cr_assert_eq(pack(texts, 2, "t.bin", -1, 4, &all), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(all.count, 3);
    cr_assert_str_eq(all.paths[2], "t-00002.bin");
    expect_tokens("t-00000.bin", (int[]){'a', 'b', 'c', 'd', -1}, all.checksums[0]);
    expect_tokens("t-00001.bin", (int[]){'e', 'f', 'g', 'h', -1}, all.checksums[1]);
    expect_tokens("t-00002.bin", (int[]){'i', 'j', -1}, all.checksums[2]);
    cr_assert_eq(pack(texts, 2, "u", -1, 5, &all), SHERD_OK);
    cr_assert_eq(all.count, 2);
    cr_assert_str_eq(all.paths[1], "u-00001");
    cr_assert_eq(pack(texts, 2, "v.bin", -1, 10, &all), SHERD_OK);
    cr_assert_str_eq(all.paths[0], "v.bin");
}

Test(token_pack, never_overwrites) {
    write_text("a.txt", "abcdefg");
    write_text("there.bin", "precious");
    write_text("t-00001.bin", "precious too");
    const char *const texts[] = {"a.txt", "none.txt"};
    told all;
    cr_assert_eq(pack(texts, 1, "there.bin", -1, INT32_MAX, &all), SHERD_ARGUMENT);
    cr_assert_str_eq(sherd_last_error(), "there.bin exists; it is not overwritten: remove it or choose another name");
    cr_assert_eq(pack(texts, 1, "a.txt", -1, INT32_MAX, &all), SHERD_ARGUMENT);
    cr_assert_eq(pack(texts, 1, "t.bin", -1, 4, &all), SHERD_ARGUMENT);
    cr_assert_neq(access("t-00000.bin", F_OK), 0, "a shard was written though another one is in the way");
    cr_assert_eq(pack(texts, 2, "new.bin", -1, 4, &all), SHERD_DATA);
    cr_assert_eq(all.count, 0);
    write_text("new.bin.part", "somebody's");
    cr_assert_eq(pack(texts, 1, "new.bin", -1, INT32_MAX, &all), SHERD_ARGUMENT);
    cr_assert_eq(access("new.bin.part", F_OK), 0);
    write_text("empty.txt", "");
    const char *const nothing[] = {"empty.txt"};
    cr_assert_eq(pack(nothing, 1, "new.bin", -1, 4, &all), SHERD_DATA);
    size_t length;
    char *bytes = read_file("there.bin", &length);
    cr_assert_str_eq(bytes, "precious");
    free(bytes);
}

Test(token_pack, tells_every_changed_token_by_the_checksum) {
    write_text("a.txt", "abcdefg");
    const char *const texts[] = {"a.txt"};
    told all;
    cr_assert_eq(pack(texts, 1, "t.bin", -1, INT32_MAX, &all), SHERD_OK);
    for (int64_t byte = 1024; byte < 1024 + 14; byte++) {
        int file = open("t.bin", O_RDWR);
        char value;
        cr_assert_eq(pread(file, &value, 1, byte), 1);
        value ^= 1;
        cr_assert_eq(pwrite(file, &value, 1, byte), 1);
        shd_token_file changed;
        shd_token_scan scan;
        cr_assert_eq(shd_token_file_open("t.bin", SHD_FORMAT_AUTO, NULL, &changed), SHERD_OK);
        cr_assert_eq(shd_token_file_scan(&changed, &scan), SHERD_OK);
        cr_assert_neq(scan.checksum, changed.checksum, "byte %d", (int)byte);
        shd_token_file_close(&changed);
        value ^= 1;
        cr_assert_eq(pwrite(file, &value, 1, byte), 1);
        close(file);
    }
}
