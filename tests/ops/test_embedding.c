#include "runtime/base/dtype.h"
#include "runtime/ops/ops.h"
#include "runtime/ops/reference.h"

#include "check.h"
#include <criterion/criterion.h>
#include <stdio.h>

typedef struct shape {
    int64_t sequences, context, columns, vocabulary;
} shape;

static const shape shapes[] = {{0, 3, 5, 7},     {1, 1, 1, 1},      {2, 18, 17, 173},
                               {3, 33, 257, 50}, {1, 100, 96, 173}, {5, 64, 130, 3}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Few sums and no products: the fast forms have the plain reference's bits, rounded once, repeated tokens included. */
static void try_shape(const shape *s, sherd_dtype dtype, bool positions, bool accumulate) {
    char what[120];
    snprintf(what, sizeof what, "embedding %dx%d of %d", (int)s->sequences, (int)s->context, (int)s->columns);
    const int64_t rows = s->sequences * s->context, count = rows * s->columns, table = s->vocabulary * s->columns;
    const int64_t position_count = s->context * s->columns;
    const int32_t *ids = check_random_ids(rows, 1, (int32_t)s->vocabulary);
    const float *token = check_random_of(dtype, table, 2, 1), *dy = check_random_of(dtype, count, 4, 1);
    const float *position = positions ? check_random_of(dtype, position_count, 3, 1) : NULL;
    const void *token_stored = check_stored(dtype, table, token), *dy_stored = check_stored(dtype, count, dy);
    const void *position_stored = check_stored(dtype, position_count, position);
    float *y = check_floats(count), *dtoken = check_copy(table, token), *dposition = check_floats(position_count);
    shd_reference_embedding_f32(rows, s->context, s->columns, ids, token, position, y);
    shd_reference_embedding_backward_f32(rows, s->context, s->columns, s->vocabulary, ids, dy, accumulate, dtoken,
                                         dposition);
    const void *y_stored = check_stored(dtype, count, y);
    for (int p = 0; p < CHECK_POOLS; p++) {
        const shd_math *math = &check_maths[dtype][p];
        void *fast = check_floats(count);
        float *fast_dtoken = check_copy(table, token), *fast_dposition = check_floats(position_count);
        shd_op_embedding(math, rows, s->context, s->columns, s->vocabulary, ids, token_stored, position_stored, fast);
        shd_op_embedding_backward(math, rows, s->context, s->columns, s->vocabulary, ids, dy_stored, accumulate,
                                  fast_dtoken, positions ? fast_dposition : NULL);
        check_same_bits(what, count * shd_dtype_bytes(dtype), y_stored, fast);
        check_same_bits(what, table * 4, dtoken, fast_dtoken);
        if (positions) check_same_bits(what, position_count * 4, dposition, fast_dposition);
        shd_op_embedding_backward(math, rows, s->context, s->columns, s->vocabulary, ids, dy_stored, accumulate, NULL,
                                  fast_dposition);
        check_same_bits(what, position_count * 4, dposition, fast_dposition);
    }
}

Test(embedding, has_the_bits_of_the_plain_reference) {
    for (int s = 0; s < SHAPES; s++)
        for (int form = 0; form < 4; form++)
            for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++) {
                check_begin();
                try_shape(&shapes[s], dtype, form & 1, form & 2);
                check_end();
            }
}

Test(embedding, adds_up_repeated_tokens_and_positions) {
    check_begin();
    static const int32_t ids[] = {1, 1, 0, 1};
    static const float dy[] = {1, 2, 4, 8};
    float dtoken[2], dposition[2], y[4];
    shd_op_embedding_backward(&check_maths[SHERD_FP32][1], 4, 2, 1, 2, ids, dy, false, dtoken, dposition);
    cr_assert(dtoken[0] == 4 && dtoken[1] == 11 && dposition[0] == 5 && dposition[1] == 10);
    shd_op_embedding_backward(&check_maths[SHERD_FP32][1], 4, 2, 1, 2, ids, dy, true, dtoken, NULL);
    cr_assert(dtoken[0] == 8 && dtoken[1] == 22);
    shd_op_embedding(&check_maths[SHERD_FP32][1], 4, 2, 1, 2, ids, dtoken, dposition, y);
    cr_assert(y[0] == 27 && y[1] == 32 && y[2] == 13 && y[3] == 32);
    check_end();
}
