/* A PLANES payload, all numbers little-endian:
 *
 *     bytes of plane 0 … bytes of plane P-1      4 bytes each; P = 4 for FP32, 2 for BF16 and FP16, 1 for INT8
 *     plane 0 … plane P-1                        one behind the other, without gaps
 *
 * A plane has as many bytes as there are values, INT8's one as many as its blocks take. Plane 0 is the least significant
 * byte of the values rotated left by one bit, plane P-1 the most significant one; INT8's only plane is its blocks as they
 * are. A plane that takes as many bytes as it has is stored as it is, one that takes fewer is a zstd frame of all of it.
 * More bytes than it has, or a sum that is not the payload's, is damage. */
#define ZSTD_STATIC_LINKING_ONLY /* contexts in memory that is given */
#include "io/checkpoint_block.h"

#include "io/planes.h"
#include "runtime/base/arith.h"
#include "runtime/base/dtype.h"
#include "runtime/base/status.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>
#include <zstd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the values' byte order is copied as it is");

enum {
    PLANES_MAX = 4,
    LENGTH_BYTES = 4,
    WINDOW_LOG = 20, /* of zstd's memory: the plane of a whole block of FP32 */
    SAMPLE_RUNS = 256,
    SAMPLE_RUN_BYTES = 64
};

struct shd_block_codec {
    const shd_plane_kernels *kernels;
    ZSTD_CCtx *compressor; /* NULL at compression 0 */
    ZSTD_DCtx *decompressor;
    unsigned char *room; /* SHD_BLOCK_RAW_BYTES_MAX: planes */
};

/* --- sizes -------------------------------------------------------------------------------------------------------- */

static int32_t count_planes(sherd_dtype dtype) { return dtype == SHERD_FP32 ? 4 : dtype == SHERD_INT8 ? 1 : 2; }

int64_t shd_block_count_max(sherd_dtype dtype) {
    if (dtype == SHERD_INT8) return SHD_BLOCK_RAW_BYTES_MAX / SHD_CODE_BLOCK_BYTES * SHD_CODE_BLOCK_COUNT;
    return SHD_BLOCK_RAW_BYTES_MAX / shd_dtype_bytes(dtype);
}

int64_t shd_block_stored_bytes_max(int64_t raw_bytes) { return shd_round_up(raw_bytes, SHD_BLOCK_ALIGN_BYTES); }

static ZSTD_compressionParameters parameters_of(int32_t compression) {
    return ZSTD_getCParams(compression, 1ull << WINDOW_LOG, 0);
}

static int64_t compressor_bytes(int32_t compression) {
    if (compression == 0) return 0;
    return shd_round_up((int64_t)ZSTD_estimateCCtxSize_usingCParams(parameters_of(compression)), SHD_BLOCK_ALIGN_BYTES);
}

static int64_t decompressor_bytes(void) {
    return shd_round_up((int64_t)ZSTD_estimateDCtxSize(), SHD_BLOCK_ALIGN_BYTES);
}

int64_t shd_block_codec_bytes(int32_t compression) {
    int64_t own = shd_round_up(sizeof(shd_block_codec), SHD_BLOCK_ALIGN_BYTES);
    return own + SHD_BLOCK_RAW_BYTES_MAX + decompressor_bytes() + compressor_bytes(compression);
}

/* --- a codec ------------------------------------------------------------------------------------------------------ */

static ZSTD_CCtx *init_compressor(void *memory, int32_t compression) {
    ZSTD_compressionParameters p = parameters_of(compression);
    ZSTD_CCtx *compressor = ZSTD_initStaticCCtx(memory, (size_t)compressor_bytes(compression));
    assert(compressor);
    const struct {
        ZSTD_cParameter parameter;
        int value;
    } settings[] = {{ZSTD_c_windowLog, (int)p.windowLog}, {ZSTD_c_chainLog, (int)p.chainLog},
                    {ZSTD_c_hashLog, (int)p.hashLog},     {ZSTD_c_searchLog, (int)p.searchLog},
                    {ZSTD_c_minMatch, (int)p.minMatch},   {ZSTD_c_targetLength, (int)p.targetLength},
                    {ZSTD_c_strategy, (int)p.strategy}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        size_t result = ZSTD_CCtx_setParameter(compressor, settings[i].parameter, settings[i].value);
        assert(!ZSTD_isError(result)), (void)result;
    }
    return compressor;
}

shd_block_codec *shd_block_codec_init(void *memory, int32_t compression) {
    assert((uintptr_t)memory % SHD_BLOCK_ALIGN_BYTES == 0 && compression >= 0 && compression <= SHD_COMPRESSION_MAX);
    char *next = memory;
    shd_block_codec *codec = memory;
    next += shd_round_up(sizeof *codec, SHD_BLOCK_ALIGN_BYTES);
    *codec = (shd_block_codec){.kernels = shd_plane_kernels_best(), .room = (unsigned char *)next};
    next += SHD_BLOCK_RAW_BYTES_MAX;
    codec->decompressor = ZSTD_initStaticDCtx(next, (size_t)decompressor_bytes());
    assert(codec->decompressor);
    next += decompressor_bytes();
    if (compression > 0) codec->compressor = init_compressor(next, compression);
    return codec;
}

/* --- encoding ----------------------------------------------------------------------------------------------------- */

/* Whether compressing a plane is worth trying: how likely two of its bytes, of a sample, are equal. Random ones are in 1
 * case of 256; one bit that never changes (the sign of squares) makes it 1 in 128, and so does a twentieth of zeros. */
static bool looks_compressible(const unsigned char *plane, int64_t bytes) {
    uint32_t counts[4][256] = {{0}};
    int64_t runs = shd_min(SAMPLE_RUNS, bytes / SAMPLE_RUN_BYTES), sample = runs * SAMPLE_RUN_BYTES;
    for (int64_t r = 0; r < runs; r++) {
        const unsigned char *run = plane + (bytes - SAMPLE_RUN_BYTES) * r / shd_max(runs - 1, 1);
        for (int i = 0; i < SAMPLE_RUN_BYTES; i += 4)
            for (int k = 0; k < 4; k++) counts[k][run[i + k]]++;
    }
    int64_t equal = 0;
    for (int b = 0; b < 256; b++) {
        int64_t n = counts[0][b] + counts[1][b] + counts[2][b] + counts[3][b];
        equal += n * (n - 1);
    }
    return equal * 192 > sample * (sample - 1);
}

/* Stores a plane at `to`, which has room for `room` bytes, and returns how many it took; -1: there is not enough. `plane`
 * lies behind `to`, or elsewhere; `spare`: as many bytes as it has. */
static int64_t store_plane(const shd_block_codec *codec, const unsigned char *plane, int64_t bytes,
                           unsigned char *spare, unsigned char *to, int64_t room) {
    if (looks_compressible(plane, bytes)) {
        int64_t worth = bytes - bytes / 16;
        size_t packed = ZSTD_compress2(codec->compressor, spare, (size_t)shd_min(worth, room), plane, (size_t)bytes);
        if (!ZSTD_isError(packed)) {
            if (spare != to) memcpy(to, spare, packed);
            return (int64_t)packed;
        }
    }
    if (bytes > room) return -1;
    memmove(to, plane, (size_t)bytes);
    return bytes;
}

static void put_length(unsigned char *to, int64_t length) {
    for (int i = 0; i < LENGTH_BYTES; i++) to[i] = (unsigned char)(length >> 8 * i);
}

/* Stores `values` as planes; returns the payload's bytes, or 0 where it would not spare a page.
 *
 * The planes but the highest are split into where they belong if all below them are stored as they are, which is how
 * weights turn out: those bytes are then moved once. */
static int64_t encode_planes(const shd_block_codec *codec, sherd_dtype dtype, int64_t raw_bytes, const void *values,
                             unsigned char *stored) {
    const int32_t planes = count_planes(dtype), last = planes - 1;
    const int64_t head = planes * LENGTH_BYTES, bytes = raw_bytes / planes;
    const int64_t most = shd_block_stored_bytes_max(raw_bytes) - SHD_BLOCK_ALIGN_BYTES;
    if (most <= 0) return 0;
    unsigned char *parts[PLANES_MAX] = {NULL}, *spare = codec->room + bytes;
    for (int32_t p = 0; p < last; p++) parts[p] = stored + head + p * bytes;
    parts[last] = codec->room;
    if (planes == 4) codec->kernels->split4(bytes, values, parts);
    if (planes == 2) codec->kernels->split2(bytes, values, parts);
    int64_t end = head;
    for (int32_t p = 0; p < planes; p++) {
        const unsigned char *plane = planes == 1 ? values : parts[p];
        unsigned char *to = stored + end;
        int64_t length = store_plane(codec, plane, bytes, p == last ? to : spare, to, most - end);
        if (length < 0) return 0;
        put_length(stored + p * LENGTH_BYTES, length);
        end += length;
    }
    return end;
}

void shd_block_encode(shd_block_codec *codec, const void *values, void *stored, shd_block_form *form) {
    assert(form->count >= 0 && form->count <= shd_block_count_max(form->dtype));
    const int64_t raw_bytes = shd_span_bytes(form->dtype, form->count);
    unsigned char *to = stored;
    form->payload_bytes = codec->compressor ? encode_planes(codec, form->dtype, raw_bytes, values, stored) : 0;
    form->transform = form->payload_bytes > 0 ? SHD_TRANSFORM_PLANES : SHD_TRANSFORM_NONE;
    if (form->transform == SHD_TRANSFORM_NONE) {
        form->payload_bytes = raw_bytes;
        if (raw_bytes > 0) memcpy(to, values, (size_t)raw_bytes);
    }
    form->stored_bytes = shd_round_up(form->payload_bytes, SHD_BLOCK_ALIGN_BYTES);
    if (form->stored_bytes > form->payload_bytes)
        memset(to + form->payload_bytes, 0, (size_t)(form->stored_bytes - form->payload_bytes));
    form->hash = codec->kernels->hash(stored, (size_t)form->stored_bytes);
}

/* --- decoding ----------------------------------------------------------------------------------------------------- */

static int64_t get_length(const unsigned char *from) {
    int64_t length = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--) length = length << 8 | from[i];
    return length;
}

/* Finds a plane in `length` bytes at `from`: there, or decompressed into `to`. */
static sherd_status load_plane(const shd_block_codec *codec, const unsigned char *from, int64_t length,
                               unsigned char *to, int64_t bytes, const unsigned char **out) {
    *out = from;
    if (length == bytes) return SHERD_OK;
    size_t unpacked = ZSTD_decompressDCtx(codec->decompressor, to, (size_t)bytes, from, (size_t)length);
    if (ZSTD_isError(unpacked)) return shd_fail(SHERD_DATA, "a plane is damaged: %s", ZSTD_getErrorName(unpacked));
    if ((int64_t)unpacked != bytes)
        return shd_fail(SHERD_DATA, "a plane of %lld bytes has %zu", (long long)bytes, unpacked);
    *out = to;
    return SHERD_OK;
}

static sherd_status decode_planes(const shd_block_codec *codec, const shd_block_form *form, int64_t raw_bytes,
                                  const unsigned char *stored, void *values) {
    const int32_t planes = count_planes(form->dtype);
    const int64_t bytes = raw_bytes / planes;
    const unsigned char *parts[PLANES_MAX];
    int64_t end = planes * LENGTH_BYTES;
    if (form->payload_bytes < end)
        return shd_fail(SHERD_DATA, "%lld bytes hold no planes", (long long)form->payload_bytes);
    for (int32_t p = 0; p < planes; p++) {
        int64_t length = get_length(stored + p * LENGTH_BYTES);
        if (length > bytes || length > form->payload_bytes - end)
            return shd_fail(SHERD_DATA, "a plane of %lld bytes would take %lld", (long long)bytes, (long long)length);
        unsigned char *to = planes == 1 ? values : codec->room + p * bytes;
        SHD_TRY(load_plane(codec, stored + end, length, to, bytes, &parts[p]));
        end += length;
    }
    if (end != form->payload_bytes)
        return shd_fail(SHERD_DATA, "its planes take %lld of %lld bytes", (long long)end,
                        (long long)form->payload_bytes);
    if (planes == 4) codec->kernels->join4(bytes, parts, values);
    if (planes == 2) codec->kernels->join2(bytes, parts, values);
    if (planes == 1 && parts[0] != values && bytes > 0) memcpy(values, parts[0], (size_t)bytes);
    return SHERD_OK;
}

static sherd_status check_form(const shd_block_form *form) {
    if ((unsigned)form->dtype > SHERD_INT8 || form->count < 0 || form->count > shd_block_count_max(form->dtype))
        return shd_fail(SHERD_DATA, "no block has %lld values", (long long)form->count);
    const int64_t raw_bytes = shd_span_bytes(form->dtype, form->count);
    if ((unsigned)form->transform >= SHD_TRANSFORMS || form->payload_bytes < 0 || form->payload_bytes > raw_bytes ||
        (form->transform == SHD_TRANSFORM_NONE && form->payload_bytes != raw_bytes))
        return shd_fail(SHERD_DATA, "%lld values cannot take %lld bytes", (long long)form->count,
                        (long long)form->payload_bytes);
    if (form->stored_bytes != shd_round_up(form->payload_bytes, SHD_BLOCK_ALIGN_BYTES))
        return shd_fail(SHERD_DATA, "%lld bytes are not stored as %lld", (long long)form->payload_bytes,
                        (long long)form->stored_bytes);
    return SHERD_OK;
}

sherd_status shd_block_decode(shd_block_codec *codec, const void *stored, const shd_block_form *form, void *values) {
    SHD_TRY(check_form(form));
    const int64_t raw_bytes = shd_span_bytes(form->dtype, form->count);
    if (codec->kernels->hash(stored, (size_t)form->stored_bytes) != form->hash)
        return shd_fail(SHERD_DATA, "its checksum does not match");
    if (form->transform == SHD_TRANSFORM_PLANES) return decode_planes(codec, form, raw_bytes, stored, values);
    if (raw_bytes > 0) memcpy(values, stored, (size_t)raw_bytes);
    return SHERD_OK;
}
