#include "io/checkpoint_index.h"
#include "runtime/base/memory.h"

#include <criterion/criterion.h>
#include <sherd/status.h>
#include <stdio.h>
#include <string.h>

#define BLOCK                                                                                                          \
    "{\"tensor\":\"w\",\"state\":\"parameter\",\"dtype\":\"fp32\",\"first\":7,\"count\":3,\"offset\":4096,"            \
    "\"transform\":\"none\",\"bytes\":12,\"xxh3\":\"00000000000000ff\"}"
#define CODES                                                                                                          \
    "{\"tensor\":\"w\",\"state\":\"exp_avg\",\"dtype\":\"int8\",\"first\":512,\"count\":300,\"offset\":8192,"          \
    "\"transform\":\"rotate-planes-zstd\",\"bytes\":100,\"xxh3\":\"fedcba9876543210\"}"

static sherd_status parse(const char *text, int64_t end_bytes, shd_keep *keep, shd_index *out) {
    return shd_index_parse(text, (int64_t)strlen(text), end_bytes, keep, out);
}

static void expect_block(const shd_file_block *block, const shd_file_block *expected) {
    cr_assert_str_eq(block->tensor, expected->tensor);
    cr_assert_str_eq(block->state, expected->state);
    cr_assert_eq(block->first, expected->first);
    cr_assert_eq(block->offset_bytes, expected->offset_bytes);
    cr_assert_eq(block->form.dtype, expected->form.dtype);
    cr_assert_eq(block->form.count, expected->form.count);
    cr_assert_eq(block->form.transform, expected->form.transform);
    cr_assert_eq(block->form.payload_bytes, expected->form.payload_bytes);
    cr_assert_eq(block->form.stored_bytes, expected->form.stored_bytes);
    cr_assert_eq(block->form.hash, expected->form.hash);
}

static const shd_file_block written[] = {
    {"w", "parameter", 7, 4096, {SHERD_FP32, 3, SHD_TRANSFORM_NONE, 12, 4096, 0xff}},
    {"w", "exp_avg", 512, 8192, {SHERD_INT8, 300, SHD_TRANSFORM_PLANES, 100, 4096, 0xfedcba9876543210}},
};

Test(checkpoint_index, parses_a_hand_written_text) {
    shd_keep *keep = shd_keep_create();
    shd_index index = {0};
    cr_assert_eq(parse("{\"later\": {}, \"blocks\": [" BLOCK ",\n" CODES "]}", 12288, keep, &index), SHERD_OK, "%s",
                 sherd_last_error());
    cr_assert_eq(index.count, 2);
    expect_block(&index.blocks[0], &written[0]);
    expect_block(&index.blocks[1], &written[1]);
    cr_assert_eq(shd_index_end_bytes(&index), 12288);
    shd_keep_destroy(keep);
}

Test(checkpoint_index, without_blocks_ends_behind_the_head) {
    shd_keep *keep = shd_keep_create();
    shd_index index = {0}, none = {0};
    char *text = NULL;
    cr_assert_eq(shd_index_print(&none, &text), SHERD_OK);
    cr_assert_str_eq(text, "{\"blocks\":[]}");
    cr_assert_eq(parse(text, 4096, keep, &index), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(index.count, 0);
    cr_assert_eq(shd_index_end_bytes(&index), 4096);
    shd_free(text);
    shd_keep_destroy(keep);
}

Test(checkpoint_index, prints_what_it_parses_to_the_letter) {
    shd_file_block blocks[] = {written[0], written[1]};
    shd_index index = {.count = 2, .blocks = blocks};
    char *text = NULL;
    cr_assert_eq(shd_index_print(&index, &text), SHERD_OK);
    cr_assert_str_eq(text, "{\"blocks\":[" BLOCK "," CODES "]}");
    shd_free(text);
}

/* Calls of shd_alloc and its kin for parsing `count` blocks, the block `i` one of tensor `tensors[i]`. */
static int64_t count_calls(const char *tensors, int64_t count) {
    char text[4096] = "{\"blocks\":[";
    for (int64_t i = 0; i < count; i++)
        snprintf(
            text + strlen(text), sizeof text - strlen(text),
            "%s{\"tensor\":\"%c\",\"state\":\"parameter\",\"dtype\":\"fp32\",\"first\":0,\"count\":3,\"offset\":%lld,"
            "\"transform\":\"none\",\"bytes\":12,\"xxh3\":\"00000000000000ff\"}",
            i ? "," : "", tensors[i], 4096LL * (i + 1));
    strcat(text, "]}");
    shd_keep *keep = shd_keep_create();
    shd_index index = {0};
    int64_t before = shd_memory_calls();
    sherd_status status = parse(text, 4096 * (count + 1), keep, &index);
    int64_t calls = shd_memory_calls() - before;
    cr_assert_eq(status, SHERD_OK, "%s", sherd_last_error());
    for (int64_t i = 0; i < count; i++) {
        cr_assert_eq(index.blocks[i].tensor[0], tensors[i]);
        cr_assert_str_eq(index.blocks[i].tensor + 1, "");
        cr_assert_str_eq(index.blocks[i].state, "parameter");
    }
    shd_keep_destroy(keep);
    return calls;
}

/* Writing threads finish them as they come: memory that went by it would differ from one save to the next. */
Test(checkpoint_index, takes_the_same_memory_in_whatever_order_the_blocks_were_written) {
    cr_assert_eq(count_calls("aaaabbbb", 8), count_calls("abababab", 8));
    cr_assert_eq(count_calls("abcdefgh", 8), count_calls("hhhhaaaa", 8));
    cr_assert_lt(count_calls("abababab", 8), 8);
}

Test(checkpoint_index, keeps_names_of_any_letters_and_every_type) {
    shd_file_block blocks[] = {
        {"\"w\\\n\xc3\xa9", "parameter", 0, 4096, {SHERD_FP32, 1 << 20, SHD_TRANSFORM_NONE, 4 << 20, 4 << 20, 0}},
        {"h", "parameter", INT64_MAX - 5, 4096 + (4 << 20), {SHERD_BF16, 5, SHD_TRANSFORM_NONE, 10, 4096, 1}},
        {"", "parameter", 0, 8192 + (4 << 20), {SHERD_FP16, 2 << 20, SHD_TRANSFORM_PLANES, 4097, 8192, UINT64_MAX}},
        {"h", "", 0, 16384 + (4 << 20), {SHERD_FP32, 1024, SHD_TRANSFORM_PLANES, 4096, 4096, 2}},
    };
    shd_index index = {.count = 4, .blocks = blocks}, again = {0};
    shd_keep *keep = shd_keep_create();
    char *text = NULL;
    cr_assert_eq(shd_index_print(&index, &text), SHERD_OK);
    cr_assert_eq(parse(text, shd_index_end_bytes(&index), keep, &again), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(again.count, 4);
    for (int i = 0; i < 4; i++) expect_block(&again.blocks[i], &blocks[i]);
    shd_free(text);
    shd_keep_destroy(keep);
}

Test(checkpoint_index, refuses_to_print_a_name_that_is_not_utf8) {
    shd_file_block block = written[0];
    block.tensor = "w\xff";
    shd_index index = {.count = 1, .blocks = &block};
    char *text = NULL;
    cr_assert_eq(shd_index_print(&index, &text), SHERD_ARGUMENT);
    cr_assert(strstr(sherd_last_error(), "UTF-8"), "%s", sherd_last_error());
}

/* `from`, a part of the text above, is replaced by `to`. */
typedef struct defect {
    const char *from, *to, *cause;
} defect;

static const defect defects[] = {
    {"{\"blocks\"", "[\"blocks\"", "JSON"},
    {"{\"blocks\"", "{\"requires\":[\"erasure-codes\"],\"blocks\"", "requires \"erasure-codes\""},
    {"{\"blocks\"", "{\"requires\":7,\"blocks\"", "\"requires\" must be a list"},
    {"{\"blocks\"", "{\"requires\":[7],\"blocks\"", "list of texts"},
    {"{\"tensor\":\"w\",\"state\":\"exp_avg\"", "{\"requires\":[\"x\"],\"tensor\":\"w\",\"state\":\"exp_avg\"",
     "block 1 of its index: it requires \"x\""},
    {"{\"blocks\"", "{\"block\"", "\"blocks\" must be a list"},
    {"[{\"tensor\":\"w\",\"state\":\"parameter\"", "[7,{\"tensor\":\"w\",\"state\":\"parameter\"", "block 0"},
    {"\"tensor\":\"w\",\"state\":\"exp_avg\"", "\"state\":\"exp_avg\"", "block 1 of its index: \"tensor\""},
    {"\"tensor\":\"w\",\"state\":\"exp_avg\"", "\"tensor\":\"\\u0000\",\"state\":\"exp_avg\"", "JSON"},
    {"\"state\":\"exp_avg\"", "\"state\":null", "\"state\""},
    {"\"state\":\"exp_avg\"", "\"state\":\"parameter\"", "fp32, bf16 or fp16"},
    {"\"dtype\":\"fp32\"", "\"dtype\":\"int8\"", "fp32, bf16 or fp16"},
    {"\"dtype\":\"int8\"", "\"dtype\":\"bf16\"", "fp32 or int8"},
    {"\"first\":7", "\"first\":-1", "\"first\""},
    {"\"first\":7", "\"first\":7.0", "\"first\""},
    {"\"first\":7", "\"first\":9223372036854775805", "\"first\""},
    {"\"first\":512", "\"first\":513", "begin within a block of codes"},
    {"\"count\":3,", "\"count\":0,", "\"count\""},
    {"\"count\":3,", "\"count\":-3,", "\"count\""},
    {"\"count\":3,", "\"count\":1048577,", "\"count\""},
    {"\"count\":3,", "\"count\":9223372036854775807,", "\"count\""},
    {"\"offset\":4096", "\"offset\":0", "\"offset\""},
    {"\"offset\":8192", "\"offset\":4096", "\"offset\""},
    {"\"offset\":8192", "\"offset\":12288", "\"offset\""},
    {"\"offset\":8192", "\"offset\":8193", "\"offset\""},
    {"\"transform\":\"none\"", "\"transform\":\"lz4\"", "\"lz4\", which this build does not know"},
    {"\"transform\":\"none\"", "\"transform\":0", "\"transform\""},
    {"\"bytes\":12", "\"bytes\":11", "\"bytes\""},
    {"\"bytes\":12", "\"bytes\":13", "\"bytes\""},
    {"\"bytes\":100", "\"bytes\":0", "\"bytes\""},
    {"\"bytes\":100", "\"bytes\":521", "\"bytes\""},
    {"00000000000000ff", "00000000000000fF", "\"xxh3\""},
    {"00000000000000ff", "0000000000000ff", "\"xxh3\""},
    {"," CODES, "", "its blocks end at byte 8192"},
    {CODES, CODES "," BLOCK, "block 2"},
    {"]}", "]}{}", "JSON"},
    {"]}", "],\"blocks\":[]}", "JSON"},
};

Test(checkpoint_index, refuses_every_defect_and_says_where) {
    const char *good = "{\"blocks\":[" BLOCK "," CODES "]}";
    for (size_t i = 0; i < sizeof defects / sizeof *defects; i++) {
        char text[4096];
        const char *at = strstr(good, defects[i].from);
        cr_assert_not_null(at, "%s", defects[i].from);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good), good, defects[i].to, at + strlen(defects[i].from));
        shd_keep *keep = shd_keep_create();
        shd_index index = {0};
        sherd_status expected = strstr(defects[i].cause, "requires \"") && !strstr(defects[i].cause, "must be")
                                    ? SHERD_UNSUPPORTED
                                    : SHERD_DATA;
        cr_assert_eq(parse(text, 12288, keep, &index), expected, "%s: %s", text, sherd_last_error());
        cr_assert(strstr(sherd_last_error(), defects[i].cause), "%s: %s", text, sherd_last_error());
        shd_keep_destroy(keep);
    }
}

Test(checkpoint_index, refuses_blocks_that_do_not_end_where_the_index_begins) {
    for (int64_t end = 0; end <= 20480; end += 4096) {
        shd_keep *keep = shd_keep_create();
        shd_index index = {0};
        sherd_status expected = end == 12288 ? SHERD_OK : SHERD_DATA;
        cr_assert_eq(parse("{\"blocks\":[" BLOCK "," CODES "]}", end, keep, &index), expected, "%lld", (long long)end);
        shd_keep_destroy(keep);
    }
}
