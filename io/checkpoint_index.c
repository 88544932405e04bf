#include "io/checkpoint_index.h"

#include "io/checkpoint.h"
#include "io/json.h"
#include "runtime/base/arith.h"
#include "runtime/base/dtype.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <string.h>

static const char *const transform_texts[] = {
#define TRANSFORM_TEXT(name, text) [SHD_TRANSFORM_##name] = text,
    SHD_TRANSFORM_MAP(TRANSFORM_TEXT)
#undef TRANSFORM_TEXT
};

int64_t shd_index_end_bytes(const shd_index *index) {
    if (index->count == 0) return SHD_FILE_HEAD_BYTES;
    const shd_file_block *last = &index->blocks[index->count - 1];
    return last->offset_bytes + last->form.stored_bytes;
}

static json_t *describe_block(const shd_file_block *block) {
    json_t *hash = shd_json_from_hash(block->form.hash);
    json_t *about =
        json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:s, s:I, s:O}", "tensor", block->tensor, "state", block->state,
                  "dtype", shd_dtype_text(block->form.dtype), "first", (json_int_t)block->first, "count",
                  (json_int_t)block->form.count, "offset", (json_int_t)block->offset_bytes, "transform",
                  transform_texts[block->form.transform], "bytes", (json_int_t)block->form.payload_bytes, "xxh3", hash);
    json_decref(hash);
    return about;
}

static sherd_status describe(const shd_index *index, json_t **out) {
    json_t *list = json_array();
    if (!list) return shd_fail(SHERD_MEMORY, "out of memory for a checkpoint's index");
    for (int64_t i = 0; i < index->count; i++) {
        const shd_file_block *block = &index->blocks[i];
        if (json_array_append_new(list, describe_block(block)) == 0) continue;
        json_decref(list);
        return shd_fail(SHERD_ARGUMENT, "%s of tensor %s cannot be stored: a name is not UTF-8, or memory is out",
                        block->state, block->tensor);
    }
    *out = list;
    return SHERD_OK;
}

sherd_status shd_index_print(const shd_index *index, char **out) {
    json_t *list = NULL;
    SHD_TRY(describe(index, &list));
    json_t *whole = json_pack("{s:O}", "blocks", list);
    json_decref(list);
    if (!whole) return shd_fail(SHERD_MEMORY, "out of memory for a checkpoint's index");
    sherd_status status = shd_json_print(whole, 0, out);
    json_decref(whole);
    return status;
}

static sherd_status parse_transform(const json_t *about, shd_transform *out) {
    const char *text = NULL;
    SHD_TRY(shd_json_text(about, "transform", &text));
    for (int32_t i = 0; i < SHD_TRANSFORMS; i++)
        if (strcmp(text, transform_texts[i]) == 0) {
            *out = (shd_transform)i;
            return SHERD_OK;
        }
    return shd_fail(SHERD_DATA, "\"transform\" is \"%.40s\", which this build does not know", text);
}

/* Parameters are numbers as such, states are masters of their own or codes. */
static sherd_status parse_dtype(const json_t *about, bool parameter, sherd_dtype *out) {
    static const sherd_dtype of_parameters[] = {SHERD_FP32, SHERD_BF16, SHERD_FP16},
                             of_states[] = {SHERD_FP32, SHERD_INT8};
    const sherd_dtype *known = parameter ? of_parameters : of_states;
    const char *text = NULL;
    SHD_TRY(shd_json_text(about, "dtype", &text));
    for (int32_t i = 0; i < (parameter ? 3 : 2); i++)
        if (strcmp(text, shd_dtype_text(known[i])) == 0) {
            *out = known[i];
            return SHERD_OK;
        }
    return shd_fail(SHERD_DATA, "\"dtype\" must be %s", parameter ? "fp32, bf16 or fp16" : "fp32 or int8");
}

/* What is stored of a block, so that it can be read into room made for the largest one. */
static sherd_status parse_form(const json_t *about, bool parameter, shd_block_form *form) {
    SHD_TRY(parse_dtype(about, parameter, &form->dtype));
    SHD_TRY(shd_json_int(about, "count", 1, shd_block_count_max(form->dtype), &form->count));
    SHD_TRY(parse_transform(about, &form->transform));
    int64_t raw_bytes = shd_span_bytes(form->dtype, form->count);
    int64_t lowest = form->transform == SHD_TRANSFORM_NONE ? raw_bytes : 1;
    SHD_TRY(shd_json_int(about, "bytes", lowest, raw_bytes, &form->payload_bytes));
    form->stored_bytes = shd_round_up(form->payload_bytes, SHD_BLOCK_ALIGN_BYTES);
    return shd_json_hash(about, "xxh3", &form->hash);
}

/* Room for the names in `list`, one after the other. Writing threads finish blocks in any order, so that neighbours are
 * often of different tensors; each block's names are its own, and one piece holds them all, however blocks are ordered. */
static char *make_name_room(const json_t *list, shd_keep *keep) {
    size_t bytes = 1, i;
    const json_t *about;
    json_array_foreach(list, i, about) {
        const json_t *tensor = json_object_get(about, "tensor"), *state = json_object_get(about, "state");
        bytes += json_string_length(tensor) + 1 + json_string_length(state) + 1;
    }
    return shd_keep_take(keep, bytes);
}

static const char *keep_name(const char *name, char **room) {
    size_t bytes = strlen(name) + 1;
    char *copy = memcpy(*room, name, bytes);
    *room += bytes;
    return copy;
}

/* One block, which must begin at *offset; *offset is then where the next one must, at most at end_bytes. Its names go
 * to *room, which is then what is left of it. */
static sherd_status parse_block(const json_t *about, int64_t end_bytes, char **room, int64_t *offset,
                                shd_file_block *block) {
    const char *tensor = NULL, *state = NULL;
    if (!json_is_object(about)) return shd_fail(SHERD_DATA, "an object is expected");
    SHD_TRY(shd_json_requires(about));
    SHD_TRY(shd_json_text(about, "tensor", &tensor));
    SHD_TRY(shd_json_text(about, "state", &state));
    SHD_TRY(parse_form(about, strcmp(state, SHD_CHECKPOINT_PARAMETER) == 0, &block->form));
    SHD_TRY(shd_json_int(about, "first", 0, INT64_MAX - block->form.count, &block->first));
    if (block->form.dtype == SHERD_INT8 && block->first % SHD_CODE_BLOCK_COUNT != 0)
        return shd_fail(SHERD_DATA, "it would begin within a block of codes, at element %lld", (long long)block->first);
    SHD_TRY(shd_json_int(about, "offset", *offset, *offset, &block->offset_bytes));
    if (block->form.stored_bytes > end_bytes - *offset)
        return shd_fail(SHERD_DATA, "it would have %lld bytes from byte %lld on, but blocks end at byte %lld",
                        (long long)block->form.stored_bytes, (long long)*offset, (long long)end_bytes);
    block->tensor = keep_name(tensor, room);
    block->state = keep_name(state, room);
    *offset += block->form.stored_bytes;
    return SHERD_OK;
}

static sherd_status parse_blocks(const json_t *whole, int64_t end_bytes, shd_keep *keep, shd_index *out) {
    json_t *list = NULL;
    SHD_TRY(shd_json_requires(whole));
    SHD_TRY(shd_json_array(whole, "blocks", &list));
    int64_t count = (int64_t)json_array_size(list), offset = SHD_FILE_HEAD_BYTES;
    shd_file_block *blocks = shd_keep_take(keep, sizeof *blocks * (size_t)count + 1);
    char *room = blocks ? make_name_room(list, keep) : NULL;
    if (!room) return shd_fail(SHERD_MEMORY, "out of memory for a checkpoint's index");
    for (int64_t i = 0; i < count; i++) {
        sherd_status status = parse_block(json_array_get(list, (size_t)i), end_bytes, &room, &offset, &blocks[i]);
        if (status != SHERD_OK) return shd_fail_within(status, "block %lld of its index", (long long)i);
    }
    if (offset != end_bytes)
        return shd_fail(SHERD_DATA, "its blocks end at byte %lld, its index begins at byte %lld", (long long)offset,
                        (long long)end_bytes);
    *out = (shd_index){.count = count, .blocks = blocks};
    return SHERD_OK;
}

sherd_status shd_index_parse(const char *text, int64_t bytes, int64_t end_bytes, shd_keep *keep, shd_index *out) {
    json_t *whole = NULL;
    SHD_TRY(shd_json_parse(text, bytes, &whole));
    sherd_status status = parse_blocks(whole, end_bytes, keep, out);
    json_decref(whole);
    return status;
}
