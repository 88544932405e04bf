/* The codec of blocks: what goes in comes out bit for bit, damage is refused, nothing outside is touched. */
#include "io/checkpoint_block.h"
#include "io/planes.h"
#include "runtime/base/arith.h"
#include "runtime/base/dtype.h"
#include "runtime/base/random.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>
#include <zstd.h>

enum { PAGE = 4096 };

/* Memory between two pages that must not be touched, ending right before the second. */
typedef struct guarded {
    char *map, *bytes;
    size_t length;
} guarded;

static guarded guard(int64_t bytes) {
    guarded g = {.length = (size_t)shd_round_up(bytes, PAGE) + 2 * PAGE};
    g.map = mmap(NULL, g.length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq((void *)g.map, MAP_FAILED);
    cr_assert_eq(mprotect(g.map, PAGE, PROT_NONE), 0);
    cr_assert_eq(mprotect(g.map + g.length - PAGE, PAGE, PROT_NONE), 0);
    g.bytes = g.map + g.length - PAGE - bytes;
    return g;
}

static void release(guarded *g) { munmap(g->map, g->length); }

/* A codec in exactly the memory that it asks for. */
typedef struct coder {
    guarded memory;
    shd_block_codec *codec;
} coder;

static coder make_coder(int32_t compression) {
    coder c = {.memory = guard(shd_block_codec_bytes(compression))};
    c.codec = shd_block_codec_init(c.memory.bytes, compression);
    return c;
}

typedef enum sample { ZEROS, ONES, NOISE, WEIGHTS, SQUARES, SPECIALS, HALF_ZEROS, KINDS } sample;
static const sherd_dtype dtypes[] = {SHERD_FP32, SHERD_BF16, SHERD_FP16, SHERD_INT8};

/* Not finite, subnormal and both zeros, over and over. */
static uint32_t special(int64_t i) {
    static const uint32_t all[] = {0x7f800000, 0xff800000, 0x7fc00001, 0xffffffff, 0x7f800001, 0x00000001,
                                   0x807fffff, 0x80000000, 0x00000000, 0x00800000, 0x7f7fffff, 0x3f800000};
    return all[(size_t)i % (sizeof all / sizeof *all)];
}

static void fill_floats(sample kind, int64_t count, float *values) {
    shd_random_normal(7 + (uint64_t)kind, 0, count, 0.02, values);
    for (int64_t i = 0; i < count; i++) {
        if (kind == ZEROS || (kind == HALF_ZEROS && i < count / 2)) values[i] = 0;
        if (kind == ONES) values[i] = 1;
        if (kind == SQUARES) values[i] = values[i] * values[i];
        if (kind == SPECIALS) values[i] = shd_float_of_bits(special(i));
    }
}

static void fill(sample kind, sherd_dtype dtype, int64_t count, void *values) {
    const int64_t bytes = shd_span_bytes(dtype, count);
    if (kind == NOISE || dtype == SHERD_INT8) {
        uint64_t state = 88172645463325252u;
        for (int64_t i = 0; i < bytes; i++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            uint64_t byte = kind == ZEROS ? 0 : kind == ONES ? 1 : kind == NOISE ? state : state & (state >> 8);
            ((unsigned char *)values)[i] = (unsigned char)byte;
        }
        return;
    }
    float *floats = malloc((size_t)count * 4 + 1);
    fill_floats(kind, count, floats);
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits = shd_float_bits(floats[i]);
        uint16_t half = dtype == SHERD_FP16 ? shd_fp16_round(floats[i]) : (uint16_t)(bits >> 16);
        if (dtype == SHERD_FP32)
            memcpy((char *)values + 4 * i, &bits, 4);
        else
            memcpy((char *)values + 2 * i, &half, 2);
    }
    free(floats);
}

/* Encodes into exactly the room that is promised, decodes into exactly that of the values, and compares. */
static shd_block_form round_trip(const coder *c, sherd_dtype dtype, int64_t count, const void *values) {
    const int64_t bytes = shd_span_bytes(dtype, count);
    guarded stored = guard(shd_block_stored_bytes_max(bytes)), back = guard(bytes);
    shd_block_form form = {.dtype = dtype, .count = count};
    memset(stored.bytes, 0xa5, (size_t)shd_block_stored_bytes_max(bytes));
    shd_block_encode(c->codec, values, stored.bytes, &form);
    cr_assert_eq(form.dtype, dtype);
    cr_assert_eq(form.count, count);
    cr_assert_leq(form.payload_bytes, bytes);
    cr_assert_eq(form.stored_bytes, shd_round_up(form.payload_bytes, PAGE));
    cr_assert_leq(form.stored_bytes, shd_block_stored_bytes_max(bytes));
    cr_assert_eq(form.hash, XXH3_64bits(stored.bytes, (size_t)form.stored_bytes));
    for (int64_t i = form.payload_bytes; i < form.stored_bytes; i++) cr_assert_eq(stored.bytes[i], 0);
    if (form.transform == SHD_TRANSFORM_NONE && bytes > 0) cr_assert_arr_eq(stored.bytes, values, (size_t)bytes);
    cr_assert_eq(shd_block_decode(c->codec, stored.bytes, &form, back.bytes), SHERD_OK, "%s", sherd_last_error());
    if (bytes > 0)
        cr_assert_eq(memcmp(back.bytes, values, (size_t)bytes), 0, "dtype %d, %ld values", dtype, (long)count);
    release(&stored), release(&back);
    return form;
}

static void round_trips(int32_t compression, const int64_t *counts, size_t count_count) {
    coder c = make_coder(compression);
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (size_t n = 0; n < count_count; n++) {
            int64_t count = shd_min(counts[n], shd_block_count_max(dtypes[d]));
            guarded values = guard(shd_span_bytes(dtypes[d], count));
            for (sample kind = 0; kind < KINDS; kind++) {
                fill(kind, dtypes[d], count, values.bytes);
                shd_block_form form = round_trip(&c, dtypes[d], count, values.bytes);
                /* Between one page and some it depends on how the last one is filled. */
                const int64_t bytes = shd_span_bytes(dtypes[d], count);
                if (compression == 0 || kind == NOISE || bytes <= PAGE)
                    cr_assert_eq(form.transform, SHD_TRANSFORM_NONE);
                else if (bytes > 8 * PAGE)
                    cr_assert_eq(form.transform, SHD_TRANSFORM_PLANES, "level %d, dtype %d, %ld values of kind %d",
                                 compression, dtypes[d], (long)count, kind);
            }
            release(&values);
        }
    release(&c.memory);
}

Test(checkpoint_block, gives_back_every_bit_without_compression) {
    round_trips(0, (int64_t[]){0, 1, 17, 17 * 257, INT64_MAX}, 5);
}

Test(checkpoint_block, gives_back_every_bit_with_compression) {
    round_trips(1, (int64_t[]){0, 1, 17, 1023, 1024, 1025, 2049, 4097, 17 * 257 * 5, INT64_MAX}, 10);
}

Test(checkpoint_block, works_at_every_level_in_the_memory_it_asks_for) {
    for (int32_t level = 0; level <= SHD_COMPRESSION_MAX; level++) round_trips(level, (int64_t[]){17 * 257 * 16}, 1);
}

Test(checkpoint_block, works_at_high_levels_on_whole_blocks, .timeout = 60) {
    for (int32_t level = 3; level <= SHD_COMPRESSION_MAX; level += 8) {
        coder c = make_coder(level);
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            int64_t count = shd_block_count_max(dtypes[d]);
            void *values = malloc((size_t)shd_span_bytes(dtypes[d], count));
            fill(HALF_ZEROS, dtypes[d], count, values);
            round_trip(&c, dtypes[d], count, values);
            free(values);
        }
        release(&c.memory);
    }
}

Test(checkpoint_block, gives_back_the_payload_of_every_nan_of_16_bits) {
    coder c = make_coder(1);
    uint16_t *all = malloc(2 << 16);
    for (uint32_t i = 0; i < 1 << 16; i++) all[i] = (uint16_t)i;
    round_trip(&c, SHERD_BF16, 1 << 16, all);
    round_trip(&c, SHERD_FP16, 1 << 16, all);
    free(all);
    release(&c.memory);
}

/* What is left of a whole block of `kind`, in hundredths of its values' bytes. */
static int64_t percent_left(sample kind, sherd_dtype dtype) {
    coder c = make_coder(1);
    const int64_t count = shd_block_count_max(dtype), bytes = shd_span_bytes(dtype, count);
    void *values = malloc((size_t)bytes);
    fill(kind, dtype, count, values);
    shd_block_form form = round_trip(&c, dtype, count, values);
    free(values);
    release(&c.memory);
    return 100 * form.stored_bytes / bytes;
}

Test(checkpoint_block, shrinks_what_has_exponents_alike_by_as_much_as_they_are) {
    cr_assert_leq(percent_left(WEIGHTS, SHERD_FP32), 84);
    cr_assert_leq(percent_left(WEIGHTS, SHERD_BF16), 69);
    cr_assert_leq(percent_left(WEIGHTS, SHERD_FP16), 92);
    cr_assert_leq(percent_left(SQUARES, SHERD_FP32), 86, "without the sign that squares do not have");
    cr_assert_leq(percent_left(HALF_ZEROS, SHERD_FP32), 43);
    cr_assert_eq(percent_left(ZEROS, SHERD_FP32), 0);
    cr_assert_eq(percent_left(ONES, SHERD_FP32), 0);
    cr_assert_eq(percent_left(ZEROS, SHERD_INT8), 0);
    cr_assert_eq(percent_left(NOISE, SHERD_FP32), 100);
}

/* Of whole eights and not, at the lowest level and at a higher one, where all is tried. */
Test(checkpoint_block, takes_the_signs_of_squares_away_and_puts_them_back) {
    for (int32_t level = 1; level <= 3; level += 2) {
        coder c = make_coder(level);
        for (int64_t count = 60000; count < 60017; count++) {
            float *values = malloc((size_t)count * 4);
            fill_floats(SQUARES, count, values);
            int64_t without = round_trip(&c, SHERD_FP32, count, values).payload_bytes;
            for (int64_t i = 0; i < count; i++)
                if ((uint64_t)i * 0x9e3779b97f4a7c15u >> 63) values[i] = -values[i];
            int64_t with = round_trip(&c, SHERD_FP32, count, values).payload_bytes;
            cr_assert(with - without > count / 8 - 1000 && with - without < count / 8 + 1000);
            /* Few of them, where a sample may miss them. */
            for (int64_t i = 0; i < count; i++) values[i] = i % 5000 == 77 ? -fabsf(values[i]) : fabsf(values[i]);
            int64_t few = round_trip(&c, SHERD_FP32, count, values).payload_bytes;
            cr_assert(few > without && few < with - count / 16);
            free(values);
        }
        release(&c.memory);
    }
}

Test(checkpoint_block, is_at_no_level_larger_than_at_the_first) {
    enum { COUNT = 1 << 16 };
    static float values[COUNT];
    for (sample kind = WEIGHTS; kind < KINDS; kind++) {
        fill_floats(kind, COUNT, values);
        int64_t first = 0;
        for (int32_t level = 1; level <= SHD_COMPRESSION_MAX; level += 3) {
            coder c = make_coder(level);
            int64_t bytes = round_trip(&c, SHERD_FP32, COUNT, values).payload_bytes;
            if (level == 1) first = bytes;
            cr_assert_leq(bytes, first, "level %d, kind %d", level, kind);
            release(&c.memory);
        }
    }
}

Test(checkpoint_block, holds_no_more_values_than_fit_into_its_bytes) {
    cr_assert_eq(shd_block_count_max(SHERD_FP32), 1 << 20);
    cr_assert_eq(shd_block_count_max(SHERD_BF16), 1 << 21);
    cr_assert_eq(shd_block_count_max(SHERD_INT8) % SHD_CODE_BLOCK_COUNT, 0);
    int64_t bytes = shd_span_bytes(SHERD_INT8, shd_block_count_max(SHERD_INT8));
    cr_assert(bytes <= SHD_BLOCK_RAW_BYTES_MAX && bytes + SHD_CODE_BLOCK_BYTES > SHD_BLOCK_RAW_BYTES_MAX);
}

Test(checkpoint_block, makes_do_with_little_memory) {
    for (int32_t level = 0; level <= SHD_COMPRESSION_MAX; level++) cr_assert_eq(shd_block_codec_bytes(level) % PAGE, 0);
    cr_assert_leq(shd_block_codec_bytes(0), (4 << 20) + (1 << 18));
    cr_assert_leq(shd_block_codec_bytes(1), 5 << 20);
    cr_assert_leq(shd_block_codec_bytes(SHD_COMPRESSION_MAX), 40 << 20);
}

Test(checkpoint_block, is_encoded_the_same_whatever_came_before) {
    enum { COUNT = 5000, BYTES = 4 * COUNT };
    static unsigned char first[BYTES + PAGE], second[BYTES + PAGE];
    static float values[COUNT], others[1 << 20];
    for (int32_t level = 1; level <= SHD_COMPRESSION_MAX; level += 6) {
        coder c = make_coder(level);
        shd_block_form a = {.dtype = SHERD_FP32, .count = COUNT}, b = a,
                       between = {.dtype = SHERD_FP32, .count = 1 << 18};
        static unsigned char ignored[4 << 18];
        fill_floats(WEIGHTS, COUNT, values);
        fill_floats(SQUARES, 1 << 20, others);
        shd_block_encode(c.codec, values, first, &a);
        shd_block_encode(c.codec, others, ignored, &between);
        shd_block_decode(c.codec, ignored, &between, others);
        memset(second, 0xff, sizeof second);
        shd_block_encode(c.codec, values, second, &b);
        cr_assert_eq(a.hash, b.hash);
        cr_assert_eq(a.payload_bytes, b.payload_bytes);
        cr_assert_arr_eq(first, second, (size_t)a.stored_bytes);
        release(&c.memory);
    }
}

/* --- damage ------------------------------------------------------------------------------------------------------- */

typedef struct block {
    shd_block_form form;
    guarded stored;
} block;

/* A small block of planes, the lowest of them stored in both ways. */
static block make_block(const coder *c, sherd_dtype dtype, sample kind, int64_t count) {
    const int64_t bytes = shd_span_bytes(dtype, count);
    char *values = malloc((size_t)bytes), *stored = aligned_alloc(PAGE, (size_t)shd_round_up(bytes, PAGE));
    block b = {.form = {.dtype = dtype, .count = count}};
    fill(kind, dtype, count, values);
    shd_block_encode(c->codec, values, stored, &b.form);
    cr_assert_eq(b.form.transform, SHD_TRANSFORM_PLANES);
    b.stored = guard(b.form.stored_bytes);
    memcpy(b.stored.bytes, stored, (size_t)b.form.stored_bytes);
    free(values), free(stored);
    return b;
}

static void expect_refusal(const coder *c, const block *b, const shd_block_form *form, char *values) {
    cr_assert_eq(shd_block_decode(c->codec, b->stored.bytes, form, values), SHERD_DATA);
}

Test(checkpoint_block, is_refused_when_any_bit_was_flipped) {
    coder c = make_coder(1);
    block b = make_block(&c, SHERD_FP32, WEIGHTS, 3100);
    guarded values = guard(4 * 3100);
    for (int64_t bit = 0; bit < 8 * b.form.stored_bytes; bit++) {
        b.stored.bytes[bit / 8] ^= (char)(1 << bit % 8);
        cr_assert_eq(shd_block_decode(c.codec, b.stored.bytes, &b.form, values.bytes), SHERD_DATA, "bit %ld",
                     (long)bit);
        b.stored.bytes[bit / 8] ^= (char)(1 << bit % 8);
    }
    cr_assert_eq(shd_block_decode(c.codec, b.stored.bytes, &b.form, values.bytes), SHERD_OK);
    release(&b.stored), release(&values), release(&c.memory);
}

Test(checkpoint_block, stays_within_its_memory_whatever_bytes_have_a_right_checksum, .timeout = 60) {
    coder c = make_coder(1);
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (sample kind = WEIGHTS; kind <= SQUARES; kind++) {
            const int64_t count = 26000, bytes = shd_span_bytes(dtypes[d], count);
            block b = make_block(&c, dtypes[d], kind == WEIGHTS ? WEIGHTS : HALF_ZEROS, count);
            guarded values = guard(bytes);
            int64_t refused = 0, tried = 0;
            for (int64_t at = 0; at < b.form.payload_bytes; at += at < 200 ? 1 : 211)
                for (int flip = 1; flip < 256; flip <<= 1, tried++) {
                    shd_block_form form = b.form;
                    b.stored.bytes[at] ^= (char)flip;
                    form.hash = XXH3_64bits(b.stored.bytes, (size_t)form.stored_bytes);
                    sherd_status status = shd_block_decode(c.codec, b.stored.bytes, &form, values.bytes);
                    cr_assert(status == SHERD_OK || status == SHERD_DATA);
                    refused += status == SHERD_DATA;
                    b.stored.bytes[at] ^= (char)flip;
                }
            cr_assert(refused > 0 && refused < tried, "%ld of %ld", (long)refused, (long)tried);
            release(&b.stored), release(&values);
        }
    release(&c.memory);
}

/* How planes are stored, as the start says: 24 bits of length, 8 of the way. */
enum { ZSTD = 1 << 24, NO_LOWEST_BITS = 2 << 24 };
static void put_entry(block *b, int plane, uint32_t entry) { memcpy(b->stored.bytes + 4 * plane, &entry, 4); }

static uint32_t entry_of(const block *b, int plane) {
    uint32_t entry;
    memcpy(&entry, b->stored.bytes + 4 * plane, 4);
    return entry;
}

Test(checkpoint_block, is_refused_when_its_planes_do_not_add_up) {
    coder c = make_coder(1);
    const int64_t count = 6000;
    block b = make_block(&c, SHERD_FP32, WEIGHTS, count);
    guarded values = guard(4 * count);
    const uint32_t packed = entry_of(&b, 3), raw = count, least = count / 8 * 7;
    cr_assert(entry_of(&b, 0) == raw && packed > ZSTD && packed < ZSTD + count);
    const uint32_t entries[][4] = {{raw + 1, raw, raw, packed},
                                   {UINT32_MAX, raw, raw, packed},
                                   {raw, raw, 0, packed},
                                   {raw, raw, raw - 1, packed},
                                   {raw, raw, packed, raw},
                                   {raw, raw, ZSTD | raw, packed},
                                   {raw, raw, NO_LOWEST_BITS | raw, packed},
                                   {raw, raw, NO_LOWEST_BITS | least, packed},
                                   {raw, raw, raw | 3 << 24, packed},
                                   {raw, raw, raw, packed - 1},
                                   {raw, raw, raw, packed + 1},
                                   {raw, raw, raw, packed ^ ZSTD},
                                   {raw, raw, raw, packed ^ ZSTD ^ NO_LOWEST_BITS},
                                   {raw, raw, raw, 0},
                                   {raw, raw, raw, ZSTD},
                                   {0, 0, 0, 0}};
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        for (int p = 0; p < 4; p++) put_entry(&b, p, entries[i][p]);
        shd_block_form form = b.form;
        form.hash = XXH3_64bits(b.stored.bytes, (size_t)form.stored_bytes);
        expect_refusal(&c, &b, &form, values.bytes);
    }
    release(&b.stored), release(&values), release(&c.memory);
}

Test(checkpoint_block, is_refused_when_what_is_known_of_it_cannot_be) {
    coder c = make_coder(1);
    const int64_t count = 6000;
    block b = make_block(&c, SHERD_FP32, WEIGHTS, count);
    guarded values = guard(4 * count);
    shd_block_form forms[12];
    for (size_t i = 0; i < 12; i++) forms[i] = b.form;
    forms[0].count = -1, forms[1].count = count - 1, forms[2].count = count + 1, forms[3].count = INT64_MAX;
    forms[4].payload_bytes = -1, forms[5].payload_bytes = INT64_MAX, forms[6].payload_bytes = 4 * count + 1;
    forms[7].stored_bytes += PAGE, forms[8].stored_bytes = 0;
    forms[9].transform = SHD_TRANSFORMS, forms[10].transform = SHD_TRANSFORM_NONE;
    forms[11].dtype = (sherd_dtype)4;
    for (size_t i = 0; i < 12; i++) expect_refusal(&c, &b, &forms[i], values.bytes);
    for (int64_t bytes = 0; bytes < b.form.payload_bytes; bytes += bytes < 100 ? 1 : 97) {
        shd_block_form form = b.form;
        form.payload_bytes = bytes, form.stored_bytes = shd_round_up(bytes, PAGE);
        form.hash = XXH3_64bits(b.stored.bytes, (size_t)form.stored_bytes);
        expect_refusal(&c, &b, &form, values.bytes);
    }
    cr_assert_eq(shd_block_decode(c.codec, b.stored.bytes, &b.form, values.bytes), SHERD_OK);
    release(&b.stored), release(&values), release(&c.memory);
}

Test(checkpoint_block, is_refused_when_a_plane_unpacks_to_more_or_fewer_bytes) {
    enum { COUNT = 4096, BLOCKS = 32 * 256 };
    coder c = make_coder(1);
    static char zeros[2 * COUNT * 4], stored[PAGE] __attribute__((aligned(PAGE)));
    const int64_t bytes = shd_span_bytes(SHERD_INT8, BLOCKS);
    guarded values = guard(bytes);
    for (int64_t more = -1; more <= 1; more++) {
        memset(stored, 0, sizeof stored);
        uint32_t packed = (uint32_t)ZSTD_compress(stored + 4, PAGE - 4, zeros, (size_t)(bytes + more), 1);
        uint32_t entry = packed | ZSTD;
        memcpy(stored, &entry, 4);
        shd_block_form form = {.dtype = SHERD_INT8,
                               .count = BLOCKS,
                               .transform = SHD_TRANSFORM_PLANES,
                               .payload_bytes = 4 + packed,
                               .stored_bytes = PAGE,
                               .hash = XXH3_64bits(stored, PAGE)};
        cr_assert_eq(shd_block_decode(c.codec, stored, &form, values.bytes), more == 0 ? SHERD_OK : SHERD_DATA);
    }
    release(&values), release(&c.memory);
}

/* --- instruction sets --------------------------------------------------------------------------------------------- */

/* Both ways, with the values anywhere, against shifts. */
static void compare_planes(const shd_plane_kernels *kernels, int64_t count, int64_t offset) {
    guarded values = guard(4 * count + 1), back = guard(4 * count), plane[4];
    unsigned char *planes[4];
    const unsigned char *read[4];
    fill(NOISE, SHERD_FP32, count, values.bytes + offset);
    const char *from = values.bytes + offset;
    for (int p = 0; p < 4; p++) plane[p] = guard(count), read[p] = planes[p] = (unsigned char *)plane[p].bytes;
    kernels->split4(count, from, planes);
    kernels->join4(count, read, back.bytes);
    for (int64_t i = 0; i < count; i++) {
        uint32_t x;
        memcpy(&x, from + 4 * i, 4);
        for (int p = 0; p < 4; p++)
            cr_assert_eq(planes[p][i], p == 0 ? (x << 1 | x >> 31) & 255 : x >> (8 * p - 1) & 255, "%s", kernels->name);
    }
    if (count > 0) cr_assert_arr_eq(back.bytes, from, (size_t)(4 * count));
    kernels->split2(count, from, planes);
    kernels->join2(count, read, back.bytes);
    for (int64_t i = 0; i < count; i++) {
        uint16_t x;
        memcpy(&x, from + 2 * i, 2);
        cr_assert_eq(planes[0][i], (x << 1 | x >> 15) & 255, "%s", kernels->name);
        cr_assert_eq(planes[1][i], x >> 7 & 255, "%s", kernels->name);
    }
    if (count > 0) cr_assert_arr_eq(back.bytes, from, (size_t)(2 * count));
    for (int p = 0; p < 4; p++) release(&plane[p]);
    release(&values), release(&back);
}

Test(planes, are_the_same_with_every_instruction_set) {
    const shd_plane_kernels *list[SHD_PLANE_KERNELS_MAX];
    int32_t count = shd_plane_kernels_list(list);
    cr_assert(count >= 1 && shd_plane_kernels_best() == list[count - 1]);
    for (int32_t k = 0; k < count; k++) {
        const int64_t counts[] = {0, 1, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 17 * 257};
        for (size_t n = 0; n < sizeof counts / sizeof *counts; n++)
            for (int64_t offset = 0; offset < 2; offset++) compare_planes(list[k], counts[n], offset);
    }
}

Test(planes, have_the_same_checksum_with_every_instruction_set) {
    const shd_plane_kernels *list[SHD_PLANE_KERNELS_MAX];
    static char bytes[5000];
    fill(NOISE, SHERD_FP32, sizeof bytes / 4, bytes);
    for (int32_t count = shd_plane_kernels_list(list), k = 0; k < count; k++)
        for (size_t length = 0; length < sizeof bytes; length++)
            cr_assert_eq(list[k]->hash(bytes, length), XXH3_64bits(bytes, length), "%s, %zu", list[k]->name, length);
}
