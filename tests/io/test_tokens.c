#include "io/tokens.h"
#include "runtime/base/memory.h"
#include "tests/io/make_job.h"

#include <criterion/criterion.h>
#include <fcntl.h>
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
    const shd_tokens_config config = {
        .path = path, .format = format, .vocab_size = 251, .context = context, .ignored_token = -1};
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
            cr_assert_eq(shd_tokens_count(tokens), 100);
            cr_assert_eq(shd_tokens_sequence_count(tokens), 9); /* (100 - 1) div 11 */
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
    const shd_tokens_config config = {.path = "tokens.txt", .vocab_size = 256, .context = 3, .ignored_token = 'a'};
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
    cr_assert_eq(shd_tokens_count(tokens), count);
    cr_assert_eq(shd_tokens_sequence_count(tokens), sequences);
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
        cr_assert_eq(shd_tokens_fingerprint(tokens, &prints[i]), SHERD_OK);
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
