#include "optim/codebook.h"

#include "optim/update_kernels.h"
#include "runtime/base/dtype.h"

#include <math.h>
#include <string.h>

_Static_assert(sizeof(shd_code_block) == SHD_CODE_BLOCK_BYTES, "blocks are laid out as the plan counts them");

enum { DECADES = 7 };

/* Fills shares[0 … count) with zero, the decades from `lowest` (0: the last one) on, and 1, in rising order; the decade
 * `lowest` has `fewest` shares. Returns their number. */
static int32_t make_shares(int32_t lowest, int32_t fewest, float shares[SHD_CODES]) {
    static const double tops[DECADES] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};
    int32_t count = 0;
    shares[count++] = 0;
    for (int32_t decade = lowest, intervals = fewest; decade < DECADES; decade++, intervals *= 2)
        for (int32_t i = 0; i < intervals; i++)
            shares[count++] = (float)(tops[decade] * (0.1 + 0.9 * (i + 0.5) / intervals));
    shares[count++] = 1;
    return count;
}

/* The largest float that is not above the middle of `low` and `high`. */
static float find_border(float low, float high) {
    double middle = ((double)low + high) / 2;
    float border = (float)middle;
    return border > middle ? nextafterf(border, 0) : border;
}

void shd_codebook_init(shd_codebook *codebook, bool root) {
    int32_t count = root ? make_shares(0, 2, codebook->shares) : make_shares(1, 2, codebook->shares);
    for (int32_t code = 0; code < SHD_CODES; code++)
        codebook->borders[code] =
            code + 1 < count ? find_border(codebook->shares[code], codebook->shares[code + 1]) : INFINITY;
    if (root)
        codebook->borders[0] = 0;
    else
        for (int32_t code = count; code < SHD_CODES; code++)
            codebook->shares[code] = code > count ? -codebook->shares[SHD_CODES - code] : NAN;
    int32_t code = 0;
    for (int32_t bucket = 0; bucket < SHD_SHARE_BUCKETS; bucket++) {
        float smallest = bucket ? shd_float_of_bits((uint32_t)(SHD_SHARE_BUCKET_FIRST + bucket) << 16) : 0;
        while (codebook->borders[code] < smallest) code++;
        codebook->first_code[bucket] = code;
    }
    codebook->root = root;
}

void shd_codes_encode(const shd_codebook *codebook, const float *from, int64_t count, shd_code_block *to) {
    const shd_optim_kernels *kernels = shd_optim_kernels_best();
    int64_t whole = count / SHD_CODE_BLOCK_COUNT, rest = count % SHD_CODE_BLOCK_COUNT;
    kernels->quantize(codebook, from, whole, to);
    if (rest == 0) return;
    float last[SHD_CODE_BLOCK_COUNT] = {0};
    memcpy(last, from + whole * SHD_CODE_BLOCK_COUNT, (size_t)rest * sizeof *last);
    kernels->quantize(codebook, last, 1, to + whole);
}

void shd_codes_decode(const shd_codebook *codebook, const shd_code_block *from, int64_t count, float *to) {
    const shd_optim_kernels *kernels = shd_optim_kernels_best();
    int64_t whole = count / SHD_CODE_BLOCK_COUNT, rest = count % SHD_CODE_BLOCK_COUNT;
    kernels->dequantize(codebook, from, whole, to);
    if (rest == 0) return;
    float last[SHD_CODE_BLOCK_COUNT];
    kernels->dequantize(codebook, from + whole, 1, last);
    memcpy(to + whole * SHD_CODE_BLOCK_COUNT, last, (size_t)rest * sizeof *last);
}
