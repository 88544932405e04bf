/* The loops of planes.h, compiled once for each instruction set (SHD_ISA), with the flags that planes.c asks the
 * processor for. Whole steps of vectors come first, what is left is done value by value. */
#define XXH_INLINE_ALL /* so that it is compiled for this instruction set */
#include <xxhash.h>

#include "io/planes.h"

#include <string.h>

#define NAME_OF(isa)  NAME_OF_(isa)
#define NAME_OF_(isa) shd_plane_kernels_##isa
#define TEXT_OF(isa)  TEXT_OF_(isa)
#define TEXT_OF_(isa) #isa

/* Each does the first values of `count`, and returns how many. */
#if defined(__AVX512VBMI__) && defined(__AVX512BW__)
#include <immintrin.h>

enum { STEP = 64 };

static inline __m512i load(const unsigned char *from) { return _mm512_loadu_si512((const void *)from); }
static inline void store(unsigned char *to, __m512i x) { _mm512_storeu_si512((void *)to, x); }

/* Index vectors for two registers taken as 128 bytes, and for four planes of two. */
typedef struct places {
    unsigned char at[64];
} places;

static inline __m512i load_places(const places *p) { return load(p->at); }

/* 32 bytes from `first` on in steps of `step`, then 32 from `second` on. */
static inline places every(int step, int first, int second) {
    places p;
    for (int i = 0; i < 32; i++) {
        p.at[i] = (unsigned char)(first + i * step);
        p.at[32 + i] = (unsigned char)(second + i * step);
    }
    return p;
}

/* Units of `bytes` by turns from two registers, both from byte `first` on. */
static inline places alternate(int bytes, int first) {
    places p;
    for (int i = 0; i < 64; i++) {
        int unit = i / bytes;
        p.at[i] = (unsigned char)(unit % 2 * 64 + first + unit / 2 * bytes + i % bytes);
    }
    return p;
}

static int64_t split4_vectors(int64_t count, const unsigned char *from, unsigned char *const planes[4]) {
    const places low_places = every(4, 0, 1), high_places = every(4, 2, 3);
    const __m512i low = load_places(&low_places), high = load_places(&high_places);
    int64_t i = 0;
    for (; i + STEP <= count; i += STEP) {
        __m512i x[4], half[2][2];
        for (int k = 0; k < 4; k++) x[k] = _mm512_rol_epi32(load(from + 4 * i + 64 * k), 1);
        for (int k = 0; k < 2; k++) {
            half[k][0] = _mm512_permutex2var_epi8(x[2 * k], low, x[2 * k + 1]);
            half[k][1] = _mm512_permutex2var_epi8(x[2 * k], high, x[2 * k + 1]);
        }
        for (int p = 0; p < 2; p++) {
            store(planes[2 * p] + i, _mm512_shuffle_i64x2(half[0][p], half[1][p], 0x44));
            store(planes[2 * p + 1] + i, _mm512_shuffle_i64x2(half[0][p], half[1][p], 0xee));
        }
    }
    return i;
}

static int64_t join4_vectors(int64_t count, const unsigned char *const planes[4], unsigned char *to) {
    const places b0 = alternate(1, 0), b1 = alternate(1, 32), w0 = alternate(2, 0), w1 = alternate(2, 32);
    const __m512i bytes[2] = {load_places(&b0), load_places(&b1)}, words[2] = {load_places(&w0), load_places(&w1)};
    int64_t i = 0;
    for (; i + STEP <= count; i += STEP) {
        __m512i p[4];
        for (int k = 0; k < 4; k++) p[k] = load(planes[k] + i);
        for (int k = 0; k < 2; k++) {
            __m512i low = _mm512_permutex2var_epi8(p[0], bytes[k], p[1]);
            __m512i high = _mm512_permutex2var_epi8(p[2], bytes[k], p[3]);
            for (int h = 0; h < 2; h++)
                store(to + 4 * i + 128 * k + 64 * h,
                      _mm512_ror_epi32(_mm512_permutex2var_epi8(low, words[h], high), 1));
        }
    }
    return i;
}

static int64_t split2_vectors(int64_t count, const unsigned char *from, unsigned char *const planes[2]) {
    const places low_places = every(2, 0, 64), high_places = every(2, 1, 65);
    const __m512i low = load_places(&low_places), high = load_places(&high_places);
    int64_t i = 0;
    for (; i + STEP <= count; i += STEP) {
        __m512i x[2];
        for (int k = 0; k < 2; k++) {
            __m512i y = load(from + 2 * i + 64 * k);
            x[k] = _mm512_or_si512(_mm512_add_epi16(y, y), _mm512_srli_epi16(y, 15));
        }
        store(planes[0] + i, _mm512_permutex2var_epi8(x[0], low, x[1]));
        store(planes[1] + i, _mm512_permutex2var_epi8(x[0], high, x[1]));
    }
    return i;
}

static int64_t join2_vectors(int64_t count, const unsigned char *const planes[2], unsigned char *to) {
    const places b0 = alternate(1, 0), b1 = alternate(1, 32);
    const __m512i bytes[2] = {load_places(&b0), load_places(&b1)};
    int64_t i = 0;
    for (; i + STEP <= count; i += STEP) {
        __m512i low = load(planes[0] + i), high = load(planes[1] + i);
        for (int k = 0; k < 2; k++) {
            __m512i x = _mm512_permutex2var_epi8(low, bytes[k], high);
            store(to + 2 * i + 64 * k, _mm512_or_si512(_mm512_srli_epi16(x, 1), _mm512_slli_epi16(x, 15)));
        }
    }
    return i;
}

#elif defined(__AVX2__)
#include <immintrin.h>

enum { STEP = 32 };

static inline __m256i load(const unsigned char *from) { return _mm256_loadu_si256((const void *)from); }
static inline void store(unsigned char *to, __m256i x) { _mm256_storeu_si256((void *)to, x); }

static int64_t split4_vectors(int64_t count, const unsigned char *from, unsigned char *const planes[4]) {
    /* Within a lane: the four values' lowest bytes, then their second ones, … */
    const __m256i by_plane = _mm256_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, 0, 4, 8, 12, 1, 5,
                                              9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m256i in_order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    int64_t i = 0;
    for (; i + STEP <= count; i += STEP) {
        __m256i x[4];
        for (int k = 0; k < 4; k++) {
            __m256i y = load(from + 4 * i + 32 * k);
            y = _mm256_or_si256(_mm256_add_epi32(y, y), _mm256_srli_epi32(y, 31));
            x[k] = _mm256_shuffle_epi8(y, by_plane);
        }
        __m256i a = _mm256_unpacklo_epi32(x[0], x[1]), b = _mm256_unpackhi_epi32(x[0], x[1]);
        __m256i c = _mm256_unpacklo_epi32(x[2], x[3]), d = _mm256_unpackhi_epi32(x[2], x[3]);
        store(planes[0] + i, _mm256_permutevar8x32_epi32(_mm256_unpacklo_epi64(a, c), in_order));
        store(planes[1] + i, _mm256_permutevar8x32_epi32(_mm256_unpackhi_epi64(a, c), in_order));
        store(planes[2] + i, _mm256_permutevar8x32_epi32(_mm256_unpacklo_epi64(b, d), in_order));
        store(planes[3] + i, _mm256_permutevar8x32_epi32(_mm256_unpackhi_epi64(b, d), in_order));
    }
    return i;
}

static int64_t join4_vectors(int64_t count, const unsigned char *const planes[4], unsigned char *to) {
    int64_t i = 0;
    for (; i + STEP <= count; i += STEP) {
        __m256i p[4], x[4];
        for (int k = 0; k < 4; k++) p[k] = load(planes[k] + i);
        __m256i a = _mm256_unpacklo_epi8(p[0], p[1]), b = _mm256_unpackhi_epi8(p[0], p[1]);
        __m256i c = _mm256_unpacklo_epi8(p[2], p[3]), d = _mm256_unpackhi_epi8(p[2], p[3]);
        /* Values 0-3 and 16-19, 4-7 and 20-23, … */
        x[0] = _mm256_unpacklo_epi16(a, c), x[1] = _mm256_unpackhi_epi16(a, c);
        x[2] = _mm256_unpacklo_epi16(b, d), x[3] = _mm256_unpackhi_epi16(b, d);
        for (int k = 0; k < 4; k++) x[k] = _mm256_or_si256(_mm256_srli_epi32(x[k], 1), _mm256_slli_epi32(x[k], 31));
        for (int k = 0; k < 2; k++) {
            store(to + 4 * i + 32 * k, _mm256_permute2x128_si256(x[2 * k], x[2 * k + 1], 0x20));
            store(to + 4 * i + 32 * k + 64, _mm256_permute2x128_si256(x[2 * k], x[2 * k + 1], 0x31));
        }
    }
    return i;
}

static int64_t split2_vectors(int64_t count, const unsigned char *from, unsigned char *const planes[2]) {
    const __m256i low = _mm256_set1_epi16(0xff);
    int64_t i = 0;
    for (; i + STEP <= count; i += STEP) {
        __m256i x[2];
        for (int k = 0; k < 2; k++) {
            __m256i y = load(from + 2 * i + 32 * k);
            x[k] = _mm256_or_si256(_mm256_add_epi16(y, y), _mm256_srli_epi16(y, 15));
        }
        __m256i p0 = _mm256_packus_epi16(_mm256_and_si256(x[0], low), _mm256_and_si256(x[1], low));
        __m256i p1 = _mm256_packus_epi16(_mm256_srli_epi16(x[0], 8), _mm256_srli_epi16(x[1], 8));
        store(planes[0] + i, _mm256_permute4x64_epi64(p0, 0xd8));
        store(planes[1] + i, _mm256_permute4x64_epi64(p1, 0xd8));
    }
    return i;
}

static int64_t join2_vectors(int64_t count, const unsigned char *const planes[2], unsigned char *to) {
    int64_t i = 0;
    for (; i + STEP <= count; i += STEP) {
        __m256i low = load(planes[0] + i), high = load(planes[1] + i);
        __m256i x[2] = {_mm256_unpacklo_epi8(low, high), _mm256_unpackhi_epi8(low, high)};
        for (int k = 0; k < 2; k++) x[k] = _mm256_or_si256(_mm256_srli_epi16(x[k], 1), _mm256_slli_epi16(x[k], 15));
        store(to + 2 * i, _mm256_permute2x128_si256(x[0], x[1], 0x20));
        store(to + 2 * i + 32, _mm256_permute2x128_si256(x[0], x[1], 0x31));
    }
    return i;
}

#else
static int64_t split4_vectors(int64_t count, const unsigned char *from, unsigned char *const planes[4]) {
    (void)count, (void)from, (void)planes;
    return 0;
}
static int64_t join4_vectors(int64_t count, const unsigned char *const planes[4], unsigned char *to) {
    (void)count, (void)planes, (void)to;
    return 0;
}
static int64_t split2_vectors(int64_t count, const unsigned char *from, unsigned char *const planes[2]) {
    (void)count, (void)from, (void)planes;
    return 0;
}
static int64_t join2_vectors(int64_t count, const unsigned char *const planes[2], unsigned char *to) {
    (void)count, (void)planes, (void)to;
    return 0;
}
#endif

/* What vectors have left over, or everything. */
static void split4_rest(int64_t first, int64_t count, const unsigned char *restrict from, unsigned char *restrict p0,
                        unsigned char *restrict p1, unsigned char *restrict p2, unsigned char *restrict p3) {
    for (int64_t i = first; i < count; i++) {
        uint32_t x;
        memcpy(&x, from + 4 * i, sizeof x);
        x = x << 1 | x >> 31;
        p0[i] = (unsigned char)x, p1[i] = (unsigned char)(x >> 8);
        p2[i] = (unsigned char)(x >> 16), p3[i] = (unsigned char)(x >> 24);
    }
}

static void join4_rest(int64_t first, int64_t count, const unsigned char *restrict p0, const unsigned char *restrict p1,
                       const unsigned char *restrict p2, const unsigned char *restrict p3, unsigned char *restrict to) {
    for (int64_t i = first; i < count; i++) {
        uint32_t x = (uint32_t)p0[i] | (uint32_t)p1[i] << 8 | (uint32_t)p2[i] << 16 | (uint32_t)p3[i] << 24;
        x = x >> 1 | x << 31;
        memcpy(to + 4 * i, &x, sizeof x);
    }
}

static void split2_rest(int64_t first, int64_t count, const unsigned char *restrict from, unsigned char *restrict p0,
                        unsigned char *restrict p1) {
    for (int64_t i = first; i < count; i++) {
        uint16_t x;
        memcpy(&x, from + 2 * i, sizeof x);
        p0[i] = (unsigned char)(x << 1 | x >> 15), p1[i] = (unsigned char)(x >> 7);
    }
}

static void join2_rest(int64_t first, int64_t count, const unsigned char *restrict p0, const unsigned char *restrict p1,
                       unsigned char *restrict to) {
    for (int64_t i = first; i < count; i++) {
        uint32_t x = (uint32_t)p1[i] << 8 | p0[i];
        uint16_t y = (uint16_t)(x >> 1 | x << 15);
        memcpy(to + 2 * i, &y, sizeof y);
    }
}

static void split4(int64_t count, const void *values, unsigned char *const planes[4]) {
    int64_t done = split4_vectors(count, values, planes);
    split4_rest(done, count, values, planes[0], planes[1], planes[2], planes[3]);
}

static void join4(int64_t count, const unsigned char *const planes[4], void *values) {
    int64_t done = join4_vectors(count, planes, values);
    join4_rest(done, count, planes[0], planes[1], planes[2], planes[3], values);
}

static void split2(int64_t count, const void *values, unsigned char *const planes[2]) {
    int64_t done = split2_vectors(count, values, planes);
    split2_rest(done, count, values, planes[0], planes[1]);
}

static void join2(int64_t count, const unsigned char *const planes[2], void *values) {
    int64_t done = join2_vectors(count, planes, values);
    join2_rest(done, count, planes[0], planes[1], values);
}

static uint64_t hash(const void *data, size_t bytes) { return XXH3_64bits(data, bytes); }

extern const shd_plane_kernels NAME_OF(SHD_ISA);
const shd_plane_kernels NAME_OF(SHD_ISA) = {TEXT_OF(SHD_ISA), split4, join4, split2, join2, hash};
