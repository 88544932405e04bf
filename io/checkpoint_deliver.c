#include "io/checkpoint_reader_parts.h"
#include "runtime/base/arith.h"
#include "runtime/base/dtype.h"
#include "runtime/base/status.h"

#include <string.h>

enum { GROUP = SHD_CODE_BLOCK_COUNT };

static sherd_status fail_dtype(const shd_file_block *block, sherd_dtype wanted) {
    return shd_fail(SHERD_DATA, "%s of tensor %s is stored as %s, and cannot be had as %s", block->state, block->tensor,
                    shd_dtype_text(block->form.dtype), shd_dtype_text(wanted));
}

/* Whole groups of codes around the elements; the last group of a block may have fewer elements. */
static sherd_status decode_groups(const shd_file_block *block, const char *codes, int64_t first, int64_t count,
                                  const shd_reader_convert *convert, float *portion, const float **floats) {
    int64_t offset = first - block->first, lowest = offset / GROUP * GROUP;
    int64_t end = shd_min(shd_round_up(offset + count, GROUP), block->form.count);
    if (!convert || !convert->run) return fail_dtype(block, SHERD_FP32);
    SHD_TRY(convert->run(convert->user, block->state, SHERD_INT8, codes + shd_span_bytes(SHERD_INT8, lowest),
                         SHERD_FP32, end - lowest, portion));
    *floats = portion + (offset - lowest);
    return SHERD_OK;
}

sherd_status shd_deliver_floats(const shd_file_block *block, const void *values, int64_t first, int64_t count,
                                const shd_reader_convert *convert, float *portion, const float **floats) {
    sherd_dtype dtype = block->form.dtype;
    if (dtype == SHERD_INT8) return decode_groups(block, values, first, count, convert, portion, floats);
    const void *from = shd_const_element(dtype, values, first - block->first);
    if (dtype != SHERD_FP32) shd_widen(dtype, count, from, portion);
    *floats = dtype == SHERD_FP32 ? from : portion;
    return SHERD_OK;
}

/* Codes go in whole groups: a piece that begins within one follows another file's, whose last group was not whole. */
static sherd_status deliver_codes(const shd_file_block *block, const char *codes, const shd_interval *piece,
                                  const shd_checkpoint_slice *wanted) {
    int64_t from = piece->first - block->first, to = piece->first - wanted->first;
    if (from % GROUP != 0 || to % GROUP != 0)
        return shd_fail(SHERD_DATA, "%s of tensor %s: the files' blocks of codes meet within one, at element %lld",
                        block->state, block->tensor, (long long)piece->first);
    memcpy((char *)wanted->values + shd_span_bytes(SHERD_INT8, to), codes + shd_span_bytes(SHERD_INT8, from),
           (size_t)shd_span_bytes(SHERD_INT8, piece->count));
    return SHERD_OK;
}

sherd_status shd_deliver(const shd_file_block *block, const void *values, const shd_interval *piece,
                         const shd_checkpoint_slice *wanted, const shd_reader_convert *convert, float *portion) {
    sherd_dtype from = block->form.dtype, to = wanted->dtype;
    if (from == SHERD_INT8 && to == SHERD_INT8) return deliver_codes(block, values, piece, wanted);
    if (to == SHERD_INT8 || (from == SHERD_INT8 && to != SHERD_FP32)) return fail_dtype(block, to);
    char *place = shd_element(to, wanted->values, piece->first - wanted->first);
    if (from == to) {
        memcpy(place, shd_const_element(from, values, piece->first - block->first),
               (size_t)(piece->count * shd_dtype_bytes(from)));
        return SHERD_OK;
    }
    for (int64_t done = 0, count; done < piece->count; done += count) {
        const float *floats = NULL;
        count = shd_min(piece->count - done, SHD_PORTION_COUNT - GROUP);
        SHD_TRY(shd_deliver_floats(block, values, piece->first + done, count, convert, portion, &floats));
        if (to == SHERD_FP32)
            memcpy(place + done * (int64_t)sizeof(float), floats, (size_t)count * sizeof(float));
        else
            shd_round(to, count, floats, shd_element(to, place, done));
    }
    return SHERD_OK;
}
