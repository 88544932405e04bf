/* Dropout masks, drawn (ops/dropout.h says how) and used a group of columns at a time.
 *
 * Philox works on four words a block. Here each stands in the lower half of a 64-bit lane: a product of two lower halves
 * is one instruction, both its halves are wanted, and what is left in upper halves does no harm. */

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Blocks drawn at once, and the columns they give. */
enum { MASK_BLOCKS = 8, MASK_COLUMNS = 8 * MASK_BLOCKS, MASK_PARTS = MASK_BLOCKS * 8 / REGISTER_BYTES };

typedef uint64_t wide_register __attribute__((vector_size(REGISTER_BYTES)));

/* The product of the lower half of each lane and a number below 2^32. */
static inline wide_register lower_product(wide_register a, uint64_t factor) {
    const wide_register b = (wide_register){0} + factor;
#if defined(__AVX512F__)
    return (wide_register)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (wide_register)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return (wide_register)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
    return (a & 0xffffffffu) * b;
#endif
}

/* Philox4x32-10 (base/random.c has it for one block) of MASK_BLOCKS blocks from `block` on: two words of a block side by
 * side, words[2i] its first two. */
static inline void draw_blocks(const shd_mask_row *mask, uint64_t block, uint64_t words[2 * MASK_BLOCKS]) {
    static const uint64_t ramp[MASK_BLOCKS] = {0, 1, 2, 3, 4, 5, 6, 7};
    wide_register x0[MASK_PARTS], x1[MASK_PARTS], x2[MASK_PARTS], x3[MASK_PARTS];
    memcpy(x0, ramp, sizeof ramp);
    for (int i = 0; i < MASK_PARTS; i++) {
        x0[i] += block;
        x1[i] = (wide_register){0} + mask->row;
        x2[i] = (wide_register){0} + mask->sequence;
        x3[i] = (wide_register){0} + (mask->sequence >> 32);
    }
    uint32_t k0 = (uint32_t)mask->key, k1 = (uint32_t)(mask->key >> 32);
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < MASK_PARTS; i++) {
            const wide_register product0 = lower_product(x0[i], 0xD2511F53u);
            const wide_register product1 = lower_product(x2[i], 0xCD9E8D57u);
            x0[i] = product1 >> 32 ^ x1[i] ^ k0;
            x1[i] = product1;
            x2[i] = product0 >> 32 ^ x3[i] ^ k1;
            x3[i] = product0;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    uint64_t first[MASK_BLOCKS], last[MASK_BLOCKS];
    for (int i = 0; i < MASK_PARTS; i++) {
        x0[i] = (x0[i] & 0xffffffffu) | x1[i] << 32;
        x2[i] = (x2[i] & 0xffffffffu) | x3[i] << 32;
    }
    memcpy(first, x0, sizeof first);
    memcpy(last, x2, sizeof last);
    for (int i = 0; i < MASK_BLOCKS; i++) {
        words[2 * i] = first[i];
        words[2 * i + 1] = last[i];
    }
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the lower half of a word comes first");

/* What columns [MASK_COLUMNS·group, …) are multiplied with. */
static inline void draw_group(const shd_mask_row *mask, int64_t group, float factors[MASK_COLUMNS]) {
    uint64_t words[2 * MASK_BLOCKS];
    uint16_t numbers[MASK_COLUMNS];
    draw_blocks(mask, (uint64_t)group * MASK_BLOCKS, words);
    memcpy(numbers, words, sizeof words);
    const uint32_t drop = mask->drop;
    const float scale = mask->scale; /* loaded here, so that nothing in the loop depends on a comparison but a choice */
    for (int i = 0; i < MASK_COLUMNS; i++) factors[i] = numbers[i] >= drop ? scale : 0.0f;
}

/* A part of a row within one group: `count` columns, of which factors[from] is the first's. */
typedef struct mask_piece {
    int64_t count, from;
    float factors[MASK_COLUMNS];
} mask_piece;

/* The piece at `at` of a call for columns [first, first + count), drawn. */
static inline void draw_piece(const shd_mask_row *mask, int64_t first, int64_t count, int64_t at, mask_piece *out) {
    out->from = (first + at) % MASK_COLUMNS;
    out->count = count - at < MASK_COLUMNS - out->from ? count - at : MASK_COLUMNS - out->from;
    draw_group(mask, (first + at) / MASK_COLUMNS, out->factors);
}

static void dropout(const shd_mask_row *mask, int64_t count, const void *x, const void *residual, void *y) {
    mask_piece piece;
    for (int64_t at = 0; at < count; at += piece.count) {
        draw_piece(mask, 0, count, at, &piece);
        if (residual) {
            INDEPENDENT
            for (int64_t i = 0; i < piece.count; i++)
                put(y, at + i, get(residual, at + i) + get(x, at + i) * piece.factors[i]);
        } else {
            INDEPENDENT
            for (int64_t i = 0; i < piece.count; i++) put(y, at + i, get(x, at + i) * piece.factors[i]);
        }
    }
}

static void drop(const shd_mask_row *mask, int64_t first, int64_t count, float *x) {
    mask_piece piece;
    for (int64_t at = 0; at < count; at += piece.count) {
        draw_piece(mask, first, count, at, &piece);
        INDEPENDENT
        for (int64_t i = 0; i < piece.count; i++) x[at + i] *= piece.factors[piece.from + i];
    }
}

static void softmax_dropout_backward(const shd_mask_row *mask, int64_t first, int64_t count, float log_sum, float mean,
                                     float factor, float *score_to_p, float *dp_to_ds) {
    mask_piece piece;
    for (int64_t at = 0; at < count; at += piece.count) {
        draw_piece(mask, first, count, at, &piece);
        INDEPENDENT
        for (int64_t i = 0; i < piece.count; i++) {
            float p = exp_of(score_to_p[at + i] - log_sum), kept = piece.factors[piece.from + i];
            score_to_p[at + i] = p * kept;
            dp_to_ds[at + i] = p * (dp_to_ds[at + i] * kept - mean) * factor;
        }
    }
}
