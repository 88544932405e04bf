/* A PLANES payload:
 *
 *     how plane 0 is stored … how plane P-1 is     4 bytes each; P = 4 for FP32, 2 for BF16 and FP16, 1 for INT8:
 *         3 bytes, little-endian: bytes that it takes
 *         1 byte: 0 as it is, 1 a zstd frame of all of it, 2 without lowest bits
 *     plane 0 … plane P-1                          one behind the other, without gaps
 *
 * A plane has as many bytes as there are values, INT8's one as many as its blocks take. Plane 0 is the least significant
 * byte of the values rotated left by one bit, plane P-1 the most significant one; INT8's only plane is its blocks as they
 * are. Without lowest bits, which are all 0 (squares have no signs): each eight bytes become seven, the upper seven bits
 * of byte i at bits 7i to 7i + 6 of a little-endian number; at the end bytes of zero fill up eight.
 *
 * At level 1 zstd looks for matches at one place in 128, which finds runs of what never changed, and leaves the rest to
 * its entropy coder. Exponents have few other matches that pay: looking everywhere, as zstd's own level 1 does, takes
 * three times as long and makes weights larger. Higher levels are zstd's, where they come out smaller.
 * docs/decisions/0017 has what was measured. */
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
    ENTRY_BYTES = 4,
    WINDOW_LOG = 20, /* of zstd above level 1: the plane of a whole block of FP32 */
    SAMPLE_RUNS = 256,
    SAMPLE_RUN_BYTES = 64
};

/* How a plane is stored. */
typedef enum storage { STORED_AS_IT_IS, STORED_BY_ZSTD, STORED_WITHOUT_LOWEST_BITS } storage;

struct shd_block_codec {
    const shd_plane_kernels *kernels;
    ZSTD_CCtx *compressor; /* NULL at compression 0 */
    ZSTD_DCtx *decompressor;
    int32_t compression;
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
    if (compression > 1) return ZSTD_getCParams(compression, 1ull << WINDOW_LOG, 0);
    return (ZSTD_compressionParameters){
        .windowLog = 17, /* one block of zstd's */
        .chainLog = ZSTD_CHAINLOG_MIN,
        .hashLog = 7, /* enough to meet a run again; more finds chance matches, which cost more */
        .searchLog = ZSTD_SEARCHLOG_MIN,
        .minMatch = ZSTD_MINMATCH_MAX,
        .targetLength = 128, /* the distance of places that are looked at */
        .strategy = ZSTD_fast};
}

static int64_t compressor_bytes(int32_t compression) {
    if (compression == 0) return 0;
    size_t least = ZSTD_estimateCCtxSize_usingCParams(parameters_of(1));
    size_t most = ZSTD_estimateCCtxSize_usingCParams(parameters_of(compression));
    return shd_round_up((int64_t)(most > least ? most : least), SHD_BLOCK_ALIGN_BYTES);
}

static int64_t decompressor_bytes(void) {
    return shd_round_up((int64_t)ZSTD_estimateDCtxSize(), SHD_BLOCK_ALIGN_BYTES);
}

int64_t shd_block_codec_bytes(int32_t compression) {
    int64_t own = shd_round_up(sizeof(shd_block_codec), SHD_BLOCK_ALIGN_BYTES);
    return own + SHD_BLOCK_RAW_BYTES_MAX + decompressor_bytes() + compressor_bytes(compression);
}

/* --- a codec ------------------------------------------------------------------------------------------------------ */

shd_block_codec *shd_block_codec_init(void *memory, int32_t compression) {
    assert((uintptr_t)memory % SHD_BLOCK_ALIGN_BYTES == 0 && compression >= 0 && compression <= SHD_COMPRESSION_MAX);
    char *next = memory;
    shd_block_codec *codec = memory;
    next += shd_round_up(sizeof *codec, SHD_BLOCK_ALIGN_BYTES);
    *codec = (shd_block_codec){
        .kernels = shd_plane_kernels_best(), .compression = compression, .room = (unsigned char *)next};
    next += SHD_BLOCK_RAW_BYTES_MAX;
    codec->decompressor = ZSTD_initStaticDCtx(next, (size_t)decompressor_bytes());
    assert(codec->decompressor);
    next += decompressor_bytes();
    if (compression > 0) codec->compressor = ZSTD_initStaticCCtx(next, (size_t)compressor_bytes(compression));
    assert(codec->compressor || compression == 0);
    return codec;
}

/* --- without lowest bits ------------------------------------------------------------------------------------------ */

static int64_t count_without_lowest_bits(int64_t bytes) { return shd_div_ceil(bytes, 8) * 7; }

static uint64_t get_word(const unsigned char *from, int64_t bytes) {
    uint64_t word = 0;
    memcpy(&word, from, (size_t)bytes);
    return word;
}

/* The upper seven bits of each of eight bytes, next to each other: neighbours move together, then pairs, then fours. */
static uint64_t pack_word(uint64_t word) {
    word = (word & 0x00fe00fe00fe00feu) >> 1 | (word & 0xfe00fe00fe00fe00u) >> 2;
    word = (word & 0x00003fff00003fffu) | (word & 0x3fff00003fff0000u) >> 2;
    return (word & 0x000000000fffffffu) | (word & 0x0fffffff00000000u) >> 4;
}

static uint64_t unpack_word(uint64_t word) {
    word = (word & 0x000000000fffffffu) | (word & 0x00fffffff0000000u) << 4;
    word = (word & 0x00003fff00003fffu) | (word & 0x0fffc0000fffc000u) << 2;
    return (word & 0x007f007f007f007fu) << 1 | (word & 0x3f803f803f803f80u) << 2;
}

/* From `plane`, of 64 bytes or more, to `to`, which has room for as many; false: some lowest bit is set. */
static bool pack_plane(const unsigned char *plane, int64_t bytes, unsigned char *to) {
    uint64_t seen = 0;
    int64_t i = 0;
    for (; i + 8 <= bytes; i += 8, to += 7) {
        uint64_t word = get_word(plane + i, 8), packed = pack_word(word);
        seen |= word;
        memcpy(to, &packed, 8); /* one byte more, which the next one overwrites */
    }
    if (i < bytes) {
        uint64_t word = get_word(plane + i, bytes - i), packed = pack_word(word);
        seen |= word;
        memcpy(to, &packed, 7);
    }
    return (seen & 0x0101010101010101u) == 0;
}

static void unpack_plane(const unsigned char *from, unsigned char *plane, int64_t bytes) {
    int64_t i = 0;
    for (; i + 16 <= bytes; i += 8, from += 7) {
        uint64_t word = unpack_word(get_word(from, 8)); /* the first byte of the next eight is left out */
        memcpy(plane + i, &word, 8);
    }
    for (; i < bytes; i += 8, from += 7) {
        uint64_t word = unpack_word(get_word(from, 7));
        memcpy(plane + i, &word, (size_t)shd_min(8, bytes - i));
    }
}

/* --- encoding ----------------------------------------------------------------------------------------------------- */

/* How a plane is best stored, judged by a sample: how likely two of its bytes are equal, and whether lowest bits are set.
 * Of random bytes two are equal in 1 case of 256, and in 1 of 128 when one of the bits never changes. */
static storage choose_storage(const unsigned char *plane, int64_t bytes) {
    uint32_t counts[4][256] = {{0}};
    const int64_t runs = shd_min(SAMPLE_RUNS, bytes / SAMPLE_RUN_BYTES), sample = runs * SAMPLE_RUN_BYTES;
    for (int64_t r = 0; r < runs; r++) {
        const unsigned char *run = plane + (bytes - SAMPLE_RUN_BYTES) * r / shd_max(runs - 1, 1);
        for (int i = 0; i < SAMPLE_RUN_BYTES; i += 4)
            for (int k = 0; k < 4; k++) counts[k][run[i + k]]++;
    }
    int64_t equal = 0, odd = 0;
    for (int b = 0; b < 256; b++) {
        int64_t n = (int64_t)counts[0][b] + counts[1][b] + counts[2][b] + counts[3][b];
        equal += n * (n - 1);
        odd += b % 2 * n;
    }
    const int64_t pairs = sample * (sample - 1);
    if (odd == 0 && equal * 96 < pairs) return STORED_WITHOUT_LOWEST_BITS;
    return equal * 192 > pairs ? STORED_BY_ZSTD : STORED_AS_IT_IS;
}

/* Compresses at `level` into `capacity` bytes; 0: they are not enough. */
static int64_t compress_at(ZSTD_CCtx *compressor, int32_t level, const unsigned char *plane, int64_t bytes,
                           unsigned char *to, int64_t capacity) {
    const ZSTD_compressionParameters p = parameters_of(level);
    const struct {
        ZSTD_cParameter parameter;
        unsigned value;
    } settings[] = {
        {ZSTD_c_windowLog, p.windowLog},
        {ZSTD_c_chainLog, p.chainLog},
        {ZSTD_c_hashLog, p.hashLog},
        {ZSTD_c_searchLog, p.searchLog},
        {ZSTD_c_minMatch, p.minMatch},
        {ZSTD_c_targetLength, p.targetLength},
        {ZSTD_c_strategy, p.strategy},
        {ZSTD_c_literalCompressionMode, ZSTD_lcm_huffman} /* which a targetLength would turn off */
    };
    ZSTD_CCtx_reset(compressor, ZSTD_reset_session_only); /* of one that failed */
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        size_t result = ZSTD_CCtx_setParameter(compressor, settings[i].parameter, (int)settings[i].value);
        assert(!ZSTD_isError(result)), (void)result;
    }
    size_t packed = ZSTD_compress2(compressor, to, (size_t)capacity, plane, (size_t)bytes);
    return ZSTD_isError(packed) ? 0 : (int64_t)packed;
}

/* Compresses a plane into less than 15 sixteenths of it, and of `room`; 0: that is not possible. */
static int64_t compress(const shd_block_codec *codec, const unsigned char *plane, int64_t bytes, unsigned char *to,
                        int64_t room) {
    const int64_t capacity = shd_min(bytes - bytes / 16, room);
    int64_t least = compress_at(codec->compressor, 1, plane, bytes, to, capacity);
    if (codec->compression == 1) return least;
    int64_t level = compress_at(codec->compressor, codec->compression, plane, bytes, to, capacity);
    if (level == 0 || (least > 0 && least < level))
        level = compress_at(codec->compressor, 1, plane, bytes, to, capacity);
    return level;
}

static void put_entry(unsigned char *to, int64_t length, storage how) {
    for (int i = 0; i < 3; i++) to[i] = (unsigned char)(length >> 8 * i);
    to[3] = (unsigned char)how;
}

/* Stores a plane at `to`, which has room for `room` bytes, and what there is to know of it at `entry`; returns how many
 * bytes it took, -1: there is not enough. `plane` lies behind `to`, or elsewhere; `spare`: as many bytes as it has, maybe
 * at `to`. */
static int64_t store_plane(const shd_block_codec *codec, const unsigned char *plane, int64_t bytes,
                           unsigned char *spare, unsigned char *to, int64_t room, unsigned char *entry) {
    storage how = choose_storage(plane, bytes);
    int64_t length = 0;
    if (how == STORED_WITHOUT_LOWEST_BITS) {
        if (bytes <= room && pack_plane(plane, bytes, spare))
            length = count_without_lowest_bits(bytes);
        else
            how = STORED_BY_ZSTD; /* the sample has missed some */
    }
    if (how == STORED_BY_ZSTD) length = compress(codec, plane, bytes, spare, room);
    if (length == 0) how = STORED_AS_IT_IS, length = bytes;
    if (length > room) return -1;
    if (how == STORED_AS_IT_IS)
        memmove(to, plane, (size_t)bytes);
    else if (spare != to)
        memcpy(to, spare, (size_t)length);
    put_entry(entry, length, how);
    return length;
}

/* Stores `values` as planes; returns the payload's bytes, or 0 where it would not spare a page.
 *
 * The planes but the highest are split into where they belong if all below them are stored as they are, which is how
 * weights turn out: those bytes are then moved once. */
static int64_t encode_planes(const shd_block_codec *codec, sherd_dtype dtype, int64_t raw_bytes, const void *values,
                             unsigned char *stored) {
    const int32_t planes = count_planes(dtype), last = planes - 1;
    const int64_t head = planes * ENTRY_BYTES, bytes = raw_bytes / planes;
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
        int64_t length =
            store_plane(codec, plane, bytes, p == last ? to : spare, to, most - end, stored + p * ENTRY_BYTES);
        if (length < 0) return 0;
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

/* Finds a plane in `length` bytes at `from`: there, or unpacked into `to`. */
static sherd_status load_plane(const shd_block_codec *codec, storage how, const unsigned char *from, int64_t length,
                               unsigned char *to, int64_t bytes, const unsigned char **out) {
    *out = how == STORED_AS_IT_IS ? from : to;
    if (how == STORED_BY_ZSTD) {
        size_t unpacked = ZSTD_decompressDCtx(codec->decompressor, to, (size_t)bytes, from, (size_t)length);
        if (ZSTD_isError(unpacked)) return shd_fail(SHERD_DATA, "a plane is damaged: %s", ZSTD_getErrorName(unpacked));
        if ((int64_t)unpacked == bytes) return SHERD_OK;
        return shd_fail(SHERD_DATA, "a plane of %lld bytes has %zu", (long long)bytes, unpacked);
    }
    if (how > STORED_WITHOUT_LOWEST_BITS) return shd_fail(SHERD_DATA, "a plane is stored in no way there is");
    if (length != (how == STORED_AS_IT_IS ? bytes : count_without_lowest_bits(bytes)))
        return shd_fail(SHERD_DATA, "a plane of %lld bytes takes %lld", (long long)bytes, (long long)length);
    if (how == STORED_WITHOUT_LOWEST_BITS) unpack_plane(from, to, bytes);
    return SHERD_OK;
}

static sherd_status decode_planes(const shd_block_codec *codec, const shd_block_form *form, int64_t raw_bytes,
                                  const unsigned char *stored, void *values) {
    const int32_t planes = count_planes(form->dtype);
    const int64_t bytes = raw_bytes / planes;
    const unsigned char *parts[PLANES_MAX];
    int64_t end = planes * ENTRY_BYTES;
    if (form->payload_bytes < end)
        return shd_fail(SHERD_DATA, "%lld bytes hold no planes", (long long)form->payload_bytes);
    for (int32_t p = 0; p < planes; p++) {
        const unsigned char *entry = stored + p * ENTRY_BYTES;
        int64_t length = entry[0] | entry[1] << 8 | entry[2] << 16;
        if (length > form->payload_bytes - end)
            return shd_fail(SHERD_DATA, "a plane would take %lld bytes, %lld are there", (long long)length,
                            (long long)(form->payload_bytes - end));
        unsigned char *to = planes == 1 ? values : codec->room + p * bytes;
        SHD_TRY(load_plane(codec, (storage)entry[3], stored + end, length, to, bytes, &parts[p]));
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
