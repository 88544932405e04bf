#include "io/tokens.h"
#include "runtime/base/memory.h"
#include "tests/io/make_job.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(tokens, .init = enter_fresh_folder, .fini = leave_fresh_folder);

enum { MAGIC = 20240520 };

/* `count` tokens 0, 1, 2, … modulo 251 of `bytes` each, after `header` bytes of it. */
static void write_tokens(const char *path, int64_t count, int bytes, const int32_t *header) {
    unsigned char *data = calloc(1024 + (size_t)(count * bytes), 1);
    size_t start = header ? 1024 : 0;
    if (header) memcpy(data, header, 12);
    for (int64_t i = 0; i < count; i++) data[start + (size_t)(i * bytes)] = (unsigned char)(i % 251);
    write_file(path, data, start + (size_t)(count * bytes));
    free(data);
}

static sherd_status open_tokens(const char *path, shd_job_format format, int64_t context, shd_tokens **out) {
    const shd_tokens_config config = {.key = "data.train",
                                      .paths = &path,
                                      .path_count = 1,
                                      .format = format,
                                      .vocab_size = 251,
                                      .context = context,
                                      .ignored_token = -1,
                                      .separator = -1};
    return shd_tokens_open(&config, out);
}

/* The cause of refusing `path`. */
static const char *refusal(const char *path, shd_job_format format, int64_t context) {
    shd_tokens *tokens = NULL;
    cr_expect_eq(open_tokens(path, format, context, &tokens), SHERD_DATA);
    cr_expect_null(tokens);
    return sherd_last_error();
}

Test(tokens, are_the_same_sequences_in_every_format) {
    const int32_t header[3] = {MAGIC, 1, 100};
    write_tokens("tokens.bin", 100, 2, header);
    write_tokens("tokens.u16", 100, 2, NULL);
    write_tokens("tokens.u32", 100, 4, NULL);
    write_tokens("tokens.txt", 100, 1, NULL);
    const struct {
        const char *path;
        shd_job_format format;
    } files[] = {{"tokens.bin", SHD_FORMAT_LLMC},
                 {"tokens.u16", SHD_FORMAT_U16},
                 {"tokens.u32", SHD_FORMAT_U32},
                 {"tokens.txt", SHD_FORMAT_TEXT}};
    for (int f = 0; f < 4; f++) {
        for (int automatic = 0; automatic < 2; automatic++) {
            shd_tokens *tokens = NULL;
            cr_assert_eq(open_tokens(files[f].path, automatic ? SHD_FORMAT_AUTO : files[f].format, 11, &tokens),
                         SHERD_OK, "%s", sherd_last_error());
            cr_assert_eq(shd_tokens_summarize(tokens).token_count, 100);
            cr_assert_eq(shd_tokens_summarize(tokens).sequence_count, 9); /* (100 - 1) div 11 */
            for (int64_t j = 0; j < 9; j++) {
                int32_t inputs[11], targets[11];
                int64_t counted = 0;
                cr_assert_eq(shd_tokens_read(tokens, j, inputs, targets, &counted), SHERD_OK);
                cr_assert_eq(counted, 11);
                for (int i = 0; i < 11; i++) {
                    cr_assert_eq(inputs[i], j * 11 + i);
                    cr_assert_eq(targets[i], j * 11 + i + 1);
                }
            }
            shd_tokens_close(tokens);
        }
    }
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}

Test(tokens, count_targets_that_are_not_ignored) {
    write_text("tokens.txt", "abcabcabca");
    const char *path = "tokens.txt";
    const shd_tokens_config config = {.key = "data.train",
                                      .paths = &path,
                                      .path_count = 1,
                                      .vocab_size = 256,
                                      .context = 3,
                                      .ignored_token = 'a',
                                      .separator = -1};
    shd_tokens *tokens = NULL;
    cr_assert_eq(shd_tokens_open(&config, &tokens), SHERD_OK);
    int32_t inputs[3], targets[3];
    int64_t counted = 0;
    cr_assert_eq(shd_tokens_read(tokens, 1, inputs, targets, &counted), SHERD_OK);
    cr_assert_eq(counted, 2);
    cr_assert(inputs[0] == 'a' && inputs[1] == 'b' && inputs[2] == 'c');
    cr_assert(targets[0] == 'b' && targets[1] == 'c' && targets[2] == -1);
    shd_tokens_close(tokens);
}

Test(tokens, are_found_beyond_four_gigabytes) {
    const int64_t count = (INT64_C(1) << 31) + 1001; /* of 4 bytes: 8 GiB, sparse */
    int file = open("big.u32", O_RDWR | O_CREAT, 0600);
    cr_assert_eq(ftruncate(file, 4 * count), 0);
    uint32_t last[2] = {77, 99};
    cr_assert_eq(pwrite(file, last, sizeof last, 4 * (count - 2)), (ssize_t)sizeof last);
    close(file);
    shd_tokens *tokens = NULL;
    cr_assert_eq(open_tokens("big.u32", SHD_FORMAT_AUTO, 1000, &tokens), SHERD_OK, "%s", sherd_last_error());
    int64_t sequences = (count - 1) / 1000;
    cr_assert_eq(shd_tokens_summarize(tokens).token_count, count);
    cr_assert_eq(shd_tokens_summarize(tokens).sequence_count, sequences);
    shd_tokens_close(tokens);
    /* One sequence up to the last token. */
    cr_assert_eq(open_tokens("big.u32", SHD_FORMAT_AUTO, 8, &tokens), SHERD_OK);
    int32_t inputs[8], targets[8];
    int64_t counted = 0, index = (count - 1) / 8 - 1, offset = index * 8;
    cr_assert_eq(shd_tokens_read(tokens, index, inputs, targets, &counted), SHERD_OK);
    cr_assert_eq(inputs[count - 2 - offset], 77);
    cr_assert_eq(targets[count - 2 - offset], 99);
    shd_tokens_close(tokens);
    unlink("big.u32");
}

Test(tokens, beyond_the_vocabulary_are_named_with_their_byte) {
    unsigned char data[64] = {0};
    data[20] = 0x2c, data[21] = 0x01; /* token 10 of u16 is 300 */
    write_file("tokens.u16", data, sizeof data);
    shd_tokens *tokens = NULL;
    cr_assert_eq(open_tokens("tokens.u16", SHD_FORMAT_AUTO, 7, &tokens), SHERD_OK);
    int32_t inputs[7], targets[7];
    int64_t counted = -5;
    cr_assert_eq(shd_tokens_read(tokens, 0, inputs, targets, &counted), SHERD_OK);
    cr_assert_eq(shd_tokens_read(tokens, 1, inputs, targets, &counted), SHERD_DATA);
    cr_assert_str_eq(sherd_last_error(), "tokens.u16: token 300 at byte 20 is not below model.vocab_size 251");
    shd_tokens_close(tokens);
}

/* The first, the last, and some between: enough for a vocabulary that does not fit. */
Test(tokens, are_sampled_at_both_ends) {
    for (int at = 0; at < 3; at++) {
        write_tokens("tokens.u16", 2000, 2, NULL);
        int file = open("tokens.u16", O_WRONLY);
        cr_assert_eq(pwrite(file, "\xff", 1, at == 1 ? 2 * 1999 : 0), 1);
        close(file);
        if (at == 2) write_tokens("tokens.u16", 2000, 2, NULL);
        shd_tokens *tokens;
        cr_assert_eq(open_tokens("tokens.u16", SHD_FORMAT_AUTO, 1, &tokens), SHERD_OK);
        cr_assert_eq(shd_tokens_sample(tokens), at == 2 ? SHERD_OK : SHERD_DATA, "case %d", at);
        shd_tokens_close(tokens);
    }
}

/* Also where no sequence reaches: 2000 tokens are 285 sequences of 7, and the last four are left out. */
Test(tokens, are_scanned_to_the_last_one) {
    for (int at = 0; at < 3; at++) {
        write_tokens("tokens.u16", 2000, 2, NULL);
        int file = open("tokens.u16", O_WRONLY);
        if (at < 2) cr_assert_eq(pwrite(file, "\xff", 1, at == 1 ? 2 * 1999 : 2 * 1203), 1);
        close(file);
        shd_tokens *tokens;
        int64_t summed = -1;
        cr_assert_eq(open_tokens("tokens.u16", SHD_FORMAT_AUTO, 7, &tokens), SHERD_OK);
        cr_assert_eq(shd_tokens_scan(tokens, &summed), at == 2 ? SHERD_OK : SHERD_DATA, "case %d", at);
        if (at == 2) cr_expect_eq(summed, 0);
        if (at < 2)
            cr_expect(strstr(sherd_last_error(), at ? "at byte 3998 " : "at byte 2406 "), "%s", sherd_last_error());
        shd_tokens_close(tokens);
    }
}

Test(tokens, of_a_file_cut_short_during_a_run_are_an_error_and_not_a_signal) {
    write_tokens("tokens.u16", 5000, 2, NULL);
    shd_tokens *tokens = NULL;
    cr_assert_eq(open_tokens("tokens.u16", SHD_FORMAT_AUTO, 10, &tokens), SHERD_OK);
    cr_assert_eq(truncate("tokens.u16", 4000), 0);
    int32_t inputs[10], targets[10];
    int64_t counted;
    cr_assert_eq(shd_tokens_read(tokens, 100, inputs, targets, &counted), SHERD_OK);
    cr_assert_eq(shd_tokens_read(tokens, 400, inputs, targets, &counted), SHERD_DATA);
    cr_assert_str_eq(
        sherd_last_error(),
        "tokens.u16: ends at byte 8000, it had 10000 bytes when the job started; do not change it during a run");
    shd_tokens_close(tokens);
}

Test(tokens, of_files_that_are_no_token_files_are_refused, .timeout = 20) {
    write_text("empty.txt", "");
    cr_expect_str_eq(refusal("empty.txt", SHD_FORMAT_AUTO, 4),
                     "empty.txt: empty: 0 tokens are too few; model.context 4 needs at least 5");
    write_text("short.txt", "abcd");
    cr_expect_str_eq(refusal("short.txt", SHD_FORMAT_AUTO, 4),
                     "short.txt: 4 tokens are too few; model.context 4 needs at least 5");
    write_text("odd.u16", "abcde");
    cr_expect_str_eq(refusal("odd.u16", SHD_FORMAT_AUTO, 1),
                     "odd.u16: 5 bytes are no whole number of 2-byte tokens; it is damaged, or data.format is wrong");
    write_text("what.bin", "abcdef");
    cr_expect_str_eq(refusal("what.bin", SHD_FORMAT_AUTO, 1),
                     "what.bin: neither an llmc header nor a name in .txt, .text, .md, .u16 or .u32 tells its format; "
                     "set data.format to llmc, u16, u32 or text");
    cr_expect_str_eq(refusal("what.bin", SHD_FORMAT_LLMC, 1),
                     "what.bin: 6 bytes are too few for an llmc header of 1024; is data.format right?");
    cr_expect_str_eq(refusal("none.txt", SHD_FORMAT_AUTO, 1),
                     "none.txt: cannot open the token file: No such file or directory");
    static const unsigned char array[] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, 0, 0, 0, 0};
    write_file("array.u16", array, sizeof array);
    for (int format = SHD_FORMAT_AUTO; format <= SHD_FORMAT_TEXT; format++)
        cr_expect_str_eq(refusal("array.u16", (shd_job_format)format, 1),
                         "array.u16: a .npy array and no token file; write its ids alone: "
                         "a.astype('<u2').tofile('tokens.u16')");
    mkdir("folder.txt", 0700);
    cr_expect_str_eq(refusal("folder.txt", SHD_FORMAT_AUTO, 1), "folder.txt: not a regular file; a token file is one");
    mkfifo("fifo.txt", 0600);
    cr_expect_str_eq(refusal("fifo.txt", SHD_FORMAT_AUTO, 1), "fifo.txt: not a regular file; a token file is one");
}

Test(tokens, behind_a_bad_header_are_refused) {
    const struct {
        int32_t header[3];
        const char *says;
    } cases[] = {
        {{20240521, 1, 50}, "bad.bin: bad llmc header: magic 20240521, expected 20240520; is data.format right?"},
        {{MAGIC, 2, 50}, "bad.bin: bad llmc header: version 2, expected 1 (uint16 tokens)"},
        {{MAGIC, 1, 51}, "bad.bin: bad llmc header: 51 tokens promised, the file holds 50; it is damaged or cut short"},
        {{MAGIC, 1, 49}, "bad.bin: bad llmc header: 49 tokens promised, the file holds 50; it is damaged or cut short"},
        {{MAGIC, 1, -1}, "bad.bin: bad llmc header: -1 tokens promised, the file holds 50; it is damaged or cut short"},
        {{MAGIC, 1, INT32_MAX},
         "bad.bin: bad llmc header: 2147483647 tokens promised, the file holds 50; it is damaged or cut short"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_tokens("bad.bin", 50, 2, cases[i].header);
        cr_expect_str_eq(refusal("bad.bin", SHD_FORMAT_LLMC, 4), cases[i].says);
    }
}

Test(tokens, have_a_fingerprint_that_changes_with_them) {
    uint64_t prints[4];
    for (int i = 0; i < 4; i++) {
        write_tokens("tokens.u16", i == 1 ? 5001 : 5000, 2, NULL);
        if (i == 2) {
            int file = open("tokens.u16", O_RDWR);
            cr_assert_eq(pwrite(file, "x", 1, 9998), 1);
            close(file);
        }
        shd_tokens *tokens = NULL;
        cr_assert_eq(open_tokens("tokens.u16", SHD_FORMAT_AUTO, 10, &tokens), SHERD_OK);
        prints[i] = shd_tokens_summarize(tokens).fingerprint;
        shd_tokens_close(tokens);
    }
    cr_assert_eq(prints[0], prints[3]);
    cr_assert_neq(prints[0], prints[1]);
    cr_assert_neq(prints[0], prints[2]);
}

Test(tokens, are_read_without_allocating) {
    write_tokens("tokens.u16", 5000, 2, NULL);
    shd_tokens *tokens = NULL;
    cr_assert_eq(open_tokens("tokens.u16", SHD_FORMAT_AUTO, 10, &tokens), SHERD_OK);
    int32_t inputs[10], targets[10];
    int64_t counted, calls = shd_memory_calls();
    for (int64_t j = 0; j < 100; j++) cr_assert_eq(shd_tokens_read(tokens, j, inputs, targets, &counted), SHERD_OK);
    cr_assert_eq(shd_memory_calls(), calls);
    shd_tokens_close(tokens);
}

/* --- several files ------------------------------------------------------------------------------------------------ */

enum { T = 4, SEPARATOR = 7 };

static sherd_status open_list(const char *const *paths, int32_t count, int64_t separator, int32_t open_files,
                              shd_tokens **out) {
    const shd_tokens_config config = {.key = "data.train",
                                      .paths = paths,
                                      .path_count = count,
                                      .format = SHD_FORMAT_TEXT,
                                      .vocab_size = 256,
                                      .context = T,
                                      .ignored_token = -1,
                                      .separator = separator,
                                      .open_files = open_files};
    return shd_tokens_open(&config, out);
}

static void expect_sequence(shd_tokens *tokens, int64_t index, const char *expected) {
    int32_t inputs[T], targets[T];
    int64_t counted = 0;
    cr_assert_eq(shd_tokens_read(tokens, index, inputs, targets, &counted), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(counted, T);
    for (int i = 0; i < T; i++) {
        cr_assert_eq(inputs[i], expected[i], "sequence %d, place %d", (int)index, i);
        cr_assert_eq(targets[i], expected[i + 1]);
    }
}

/* By hand: 9 tokens are two sequences of 4 and the last target, 5 are one, 4 and less are none. */
Test(tokens, of_several_files_never_cross_an_end_and_what_tails_leave_is_counted) {
    write_text("a", "abcdefghi");
    write_text("b", "");
    write_text("c", "1234567");
    write_text("d", "x");
    write_text("e", "ABCD");
    write_text("f", "VWXYZ");
    const char *const paths[] = {"a", "b", "c", "d", "e", "f"};
    shd_tokens *tokens = NULL;
    cr_assert_eq(open_list(paths, 6, -1, 0, &tokens), SHERD_OK, "%s", sherd_last_error());
    const shd_source_summary held = shd_tokens_summarize(tokens);
    cr_assert(held.file_count == 6 && held.token_count == 9 + 7 + 1 + 4 + 5);
    cr_assert_eq(held.sequence_count, 4);
    cr_assert_eq(held.dropped_count, 2 + 1 + 4); /* "67", "x", "ABCD" */
    cr_assert_eq(held.short_count, 3);
    static const char *const expected[] = {"abcde", "efghi", "12345", "VWXYZ"};
    for (int64_t j = 3; j >= 0; j--) expect_sequence(tokens, j, expected[j]);
    shd_tokens_close(tokens);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}

Test(tokens, of_too_few_a_file_are_refused_with_what_is_needed) {
    write_text("zero", "");
    write_text("one", "a");
    write_text("context", "abcd");
    write_text("enough", "abcde");
    const char *paths[] = {"zero", "one", "context", "enough"};
    shd_tokens *tokens = NULL;
    cr_expect_eq(open_list(paths, 1, -1, 0, &tokens), SHERD_DATA);
    cr_expect_str_eq(sherd_last_error(), "zero: empty: 0 tokens are too few; model.context 4 needs at least 5");
    cr_expect_eq(open_list(paths + 1, 1, -1, 0, &tokens), SHERD_DATA);
    cr_expect_str_eq(sherd_last_error(), "one: 1 tokens are too few; model.context 4 needs at least 5");
    cr_expect_eq(open_list(paths + 2, 1, -1, 0, &tokens), SHERD_DATA);
    cr_expect_str_eq(sherd_last_error(), "context: 4 tokens are too few; model.context 4 needs at least 5");
    cr_expect_eq(open_list(paths, 3, -1, 0, &tokens), SHERD_DATA);
    cr_expect_str_eq(sherd_last_error(),
                     "data.train: none of its 3 files, 5 tokens in all, holds a sequence; model.context 4 needs at "
                     "least 5 tokens in a file, or data.document_separator to pack files together");
    cr_expect_eq(open_list(paths, 2, SEPARATOR, 0, &tokens), SHERD_DATA);
    cr_expect_str_eq(sherd_last_error(),
                     "data.train: its 2 files hold 1 tokens together; model.context 4 needs at least 5");
    cr_assert_eq(open_list(paths + 3, 1, -1, 0, &tokens), SHERD_OK);
    cr_assert_eq(shd_tokens_summarize(tokens).sequence_count, 1);
    cr_assert_eq(shd_tokens_summarize(tokens).dropped_count, 0);
    shd_tokens_close(tokens);
    cr_assert_eq(open_list(paths, 3, SEPARATOR, 0, &tokens), SHERD_OK); /* a \7 a b c d: six tokens, one left */
    cr_assert_eq(shd_tokens_summarize(tokens).token_count, 6);
    cr_assert_eq(shd_tokens_summarize(tokens).dropped_count, 1);
    expect_sequence(tokens, 0, "a\7abc");
    shd_tokens_close(tokens);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}

Test(tokens, of_documents_are_packed_with_one_separator_between_two) {
    static const char *const texts[] = {"",  "ab",  "\7",  "", "c", "",   "d\7", "",
                                        "e", "\7f", "ghi", "", "j", "kl", "\7\7"};
    /* Between "ab" and "\7", "\7" and "c", "d\7" and "e", "e" and "\7f" there is one already. */
    static const char whole[] = "ab\7c\7d\7e\7f\7ghi\7j\7kl\7\7";
    enum { COUNT = sizeof texts / sizeof *texts };
    char names[COUNT][8];
    const char *paths[COUNT];
    for (int i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof names[i], "%02d", i);
        write_text(names[i], texts[i]);
        paths[i] = names[i];
    }
    for (int32_t open_files = 1; open_files < 4; open_files++) {
        shd_tokens *tokens = NULL;
        cr_assert_eq(open_list(paths, COUNT, SEPARATOR, open_files, &tokens), SHERD_OK, "%s", sherd_last_error());
        const shd_source_summary held = shd_tokens_summarize(tokens);
        int64_t length = (int64_t)strlen(whole);
        cr_assert_eq(held.token_count, length, "%d, not %d", (int)held.token_count, (int)length);
        cr_assert_eq(held.sequence_count, (length - 1) / T);
        cr_assert_eq(held.dropped_count, length - ((length - 1) / T * T + 1));
        for (int64_t j = 0; j < held.sequence_count; j++) expect_sequence(tokens, j, whole + j * T);
        shd_tokens_close(tokens);
    }
}

/* Shards may be cut inside a document: nothing is put between them, whatever they begin and end with. */
Test(tokens, of_shards_with_separators_are_joined_as_they_are) {
    unsigned char bytes[64] = {0};
    for (int i = 0; i < 32; i++) bytes[2 * i] = (unsigned char)(i % 6 == 5 ? SEPARATOR : 'a' + i);
    static const int ends[] = {0, 4, 5, 12, 13, 13, 32};
    static const char *const names[] = {"a.u16", "b.u16", "c.u16", "d.u16", "e.u16", "f.u16"};
    for (int i = 0; i < 6; i++) write_file(names[i], bytes + 2 * ends[i], (size_t)(2 * (ends[i + 1] - ends[i])));
    const shd_tokens_config config = {.key = "data.train",
                                      .paths = (const char *const[]){"*.u16"},
                                      .path_count = 1,
                                      .vocab_size = 256,
                                      .context = T,
                                      .ignored_token = -1,
                                      .separator = SEPARATOR};
    shd_tokens *tokens = NULL;
    cr_assert_eq(shd_tokens_open(&config, &tokens), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(shd_tokens_summarize(tokens).token_count, 32);
    cr_assert_eq(shd_tokens_summarize(tokens).sequence_count, 7);
    char whole[33] = {0};
    for (int i = 0; i < 32; i++) whole[i] = (char)bytes[2 * i];
    for (int64_t j = 0; j < 7; j++) expect_sequence(tokens, j, whole + j * T);
    shd_tokens_close(tokens);
}

static int count_descriptors(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder)) count++;
    closedir(folder);
    return count;
}

Test(tokens, of_many_files_keep_few_of_them_open) {
    enum { FILES = 300, OPEN = 5 };
    for (int i = 0; i < FILES; i++) {
        char name[16];
        unsigned char bytes[T + 1] = {(unsigned char)(i % 251), (unsigned char)(i / 251)};
        snprintf(name, sizeof name, "f%03d.txt", i);
        write_file(name, bytes, sizeof bytes);
    }
    const char *const glob[] = {"f*.txt"};
    shd_tokens *tokens = NULL;
    int before = count_descriptors();
    cr_assert_eq(open_list(glob, 1, -1, OPEN, &tokens), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(shd_tokens_summarize(tokens).sequence_count, FILES);
    int32_t inputs[T], targets[T];
    int64_t counted, calls = shd_memory_calls();
    for (int64_t k = 0; k < 3 * FILES; k++) {
        int64_t j = k * 97 % FILES;
        cr_assert_eq(shd_tokens_read(tokens, j, inputs, targets, &counted), SHERD_OK);
        cr_assert(inputs[0] == j % 251 && inputs[1] == j / 251);
        cr_assert_leq(count_descriptors(), before + OPEN);
    }
    cr_assert_eq(shd_memory_calls(), calls);
    write_text("f000.txt", "another length");
    for (int64_t j = 100; j < 110; j++) cr_assert_eq(shd_tokens_read(tokens, j, inputs, targets, &counted), SHERD_OK);
    cr_assert_eq(shd_tokens_read(tokens, 0, inputs, targets, &counted), SHERD_DATA);
    cr_assert_str_eq(sherd_last_error(),
                     "f000.txt: has 14 bytes, it had 5 bytes when the job started; do not change it during a run");
    shd_tokens_close(tokens);
    cr_assert_eq(count_descriptors(), before);
}

Test(tokens, come_from_globs_in_the_order_of_their_names) {
    mkdir("sub", 0700);
    write_text("sub/b.txt", "bbbbb");
    write_text("sub/a10.txt", "11111");
    write_text("sub/a9.txt", "99999");
    write_text("sub/Z.txt", "ZZZZZ");
    write_text("odd[1].txt", "ooooo");
    const char *paths[] = {"odd[1].txt", "sub/*.txt", "sub/a9.txt"};
    static const char *const expected[] = {"ooooo", "ZZZZZ", "11111", "99999", "bbbbb", "99999"};
    shd_tokens *tokens = NULL;
    cr_assert_eq(open_list(paths, 3, -1, 0, &tokens), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(shd_tokens_summarize(tokens).sequence_count, 6);
    for (int64_t j = 0; j < 6; j++) expect_sequence(tokens, j, expected[j]);
    shd_tokens_close(tokens);
    paths[0] = "sub/*.bin";
    cr_assert_eq(open_list(paths, 1, -1, 0, &tokens), SHERD_DATA);
    cr_assert_str_eq(sherd_last_error(), "data.train: no file matches sub/*.bin");
    paths[0] = "s*";
    cr_assert_eq(open_list(paths, 1, -1, 0, &tokens), SHERD_DATA);
    cr_assert_str_eq(sherd_last_error(), "sub: not a regular file; a token file is one");
}

Test(tokens, of_several_files_have_a_fingerprint_of_their_order_too) {
    write_text("a", "abcdefghi");
    write_text("b", "ABCDEFGHI");
    const char *const paths[] = {"a", "b", "a", "b", "b"};
    uint64_t prints[4];
    for (int i = 0; i < 4; i++) {
        shd_tokens *tokens = NULL;
        cr_assert_eq(open_list(paths + i, i == 3 ? 1 : 2, -1, 0, &tokens), SHERD_OK);
        prints[i] = shd_tokens_summarize(tokens).fingerprint;
        shd_tokens_close(tokens);
    }
    cr_assert(prints[0] == prints[2] && prints[0] != prints[1] && prints[0] != prints[3]);
}
