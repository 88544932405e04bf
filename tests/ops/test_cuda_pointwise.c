/* Activations, rotary positions and embeddings on a device, against the plain references. */
#include "runtime/base/dtype.h"
#include "runtime/ops/cuda/cuda_ops.h"
#include "runtime/ops/reference.h"

#include "check_device.h"
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const int64_t rows_tried[] = {1, 3, 17, 64}, columns_tried[] = {1, 7, 48, 96, 257, 1024};
enum { ROWS = 4, COLUMNS = 6, ENOUGH_FOR_ERRORS = 257 };

/* --- activations -------------------------------------------------------------------------------------------------- */

typedef void *const inputs[3];
typedef void *const outputs[2];

static void gelu(const shd_math *m, int64_t n, inputs in, outputs out) { shd_cuda_gelu(m, n, in[0], out[0]); }
static void gelu_backward(const shd_math *m, int64_t n, inputs in, outputs out) {
    shd_cuda_gelu_backward(m, n, in[0], in[1], out[0]);
}
static void relu(const shd_math *m, int64_t n, inputs in, outputs out) { shd_cuda_relu(m, n, in[0], out[0]); }
static void relu_backward(const shd_math *m, int64_t n, inputs in, outputs out) {
    shd_cuda_relu_backward(m, n, in[0], in[1], out[0]);
}
static void swiglu(const shd_math *m, int64_t n, inputs in, outputs out) {
    shd_cuda_swiglu(m, n, in[0], in[1], out[0]);
}
static void swiglu_backward(const shd_math *m, int64_t n, inputs in, outputs out) {
    shd_cuda_swiglu_backward(m, n, in[0], in[1], in[2], out[0], out[1]);
}

/* The references, with the same operands. */
#define REFERENCE(type, suffix)                                                                                        \
    static void gelu_##suffix(int64_t n, type *const in[3], type *const out[2]) {                                      \
        shd_reference_gelu_##suffix(n, in[0], out[0]);                                                                 \
    }                                                                                                                  \
    static void gelu_backward_##suffix(int64_t n, type *const in[3], type *const out[2]) {                             \
        shd_reference_gelu_backward_##suffix(n, in[0], in[1], out[0]);                                                 \
    }                                                                                                                  \
    static void relu_##suffix(int64_t n, type *const in[3], type *const out[2]) {                                      \
        shd_reference_relu_##suffix(n, in[0], out[0]);                                                                 \
    }                                                                                                                  \
    static void relu_backward_##suffix(int64_t n, type *const in[3], type *const out[2]) {                             \
        shd_reference_relu_backward_##suffix(n, in[0], in[1], out[0]);                                                 \
    }                                                                                                                  \
    static void swiglu_##suffix(int64_t n, type *const in[3], type *const out[2]) {                                    \
        shd_reference_swiglu_##suffix(n, in[0], in[1], out[0]);                                                        \
    }                                                                                                                  \
    static void swiglu_backward_##suffix(int64_t n, type *const in[3], type *const out[2]) {                           \
        shd_reference_swiglu_backward_##suffix(n, in[0], in[1], in[2], out[0], out[1]);                                \
    }
REFERENCE(float, f32)
REFERENCE(double, f64)

typedef struct activation {
    const char *name;
    int inputs, outputs;
    void (*run)(const shd_math *math, int64_t count, inputs in, outputs out);
    void (*plain)(int64_t count, float *const in[3], float *const out[2]);
    void (*exact)(int64_t count, double *const in[3], double *const out[2]);
    bool may_overwrite[2][3]; /* [output][input]: the header's promises */
} activation;
#define ACTIVATION(name, inputs, outputs, ...)                                                                         \
    {                                                                                                                  \
#name, inputs, outputs, name, name##_f32, name##_f64, { __VA_ARGS__ }                                          \
    }
static const activation activations[] = {
    ACTIVATION(gelu, 1, 1, {true}),         ACTIVATION(gelu_backward, 2, 1, {false, true}),
    ACTIVATION(relu, 1, 1, {true}),         ACTIVATION(relu_backward, 2, 1, {false, true}),
    ACTIVATION(swiglu, 2, 1, {true, true}), ACTIVATION(swiglu_backward, 3, 2, {true, false, true}, {false, true, true}),
};
enum { ACTIVATIONS = sizeof activations / sizeof *activations };

static void try_activation(const activation *a, sherd_dtype dtype, int64_t count, double scale) {
    char what[120];
    snprintf(what, sizeof what, "%s of %d at scale %g", a->name, (int)count, scale);
    const int64_t bytes = count * shd_dtype_bytes(dtype);
    const shd_math math = check_device_math(dtype);
    float *in[3] = {0}, *plain[2];
    double *wide[3] = {0}, *exact[2];
    void *stored[3] = {0}, *out[2];
    for (int i = 0; i < a->inputs; i++) {
        in[i] = check_random_of(dtype, count, 10 + (uint64_t)i, scale);
        wide[i] = check_widen(count, in[i]);
        stored[i] = check_device_stored(dtype, count, in[i]);
    }
    for (int i = 0; i < 2; i++) {
        plain[i] = check_floats(count), exact[i] = check_doubles(count);
        out[i] = check_device_memory(bytes);
    }
    a->plain(count, in, plain);
    a->exact(count, wide, exact);
    a->run(&math, count, stored, out);
    for (int i = 0; i < a->outputs; i++)
        if (count >= ENOUGH_FOR_ERRORS)
            check_error(what, dtype, count, check_from_device(bytes, out[i]), plain[i], exact[i]);
}

Test(cuda_pointwise, activations_err_at_most_twice_as_much_as_the_plain_references) {
    static const double scales[] = {1e-4, 1, 6, 40};
    check_device_begin();
    for (int a = 0; a < ACTIVATIONS; a++)
        for (int r = 0; r < ROWS; r++)
            for (int c = 0; c < COLUMNS; c++)
                for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++) {
                    try_activation(&activations[a], dtype, rows_tried[r] * columns_tried[c], scales[(r + c) % 4]);
                    check_device_next();
                }
    check_device_end();
}

/* A number's result must not depend on where it stands: spans from odd places on, which no pack of 16 bytes fits, have
 * the bits of the same place of a whole. */
static void try_spans(const activation *a, sherd_dtype dtype) {
    enum { COUNT = 512 };
    static const int64_t at[] = {1, 8, 13}, lengths[] = {1, 17, 257};
    const shd_math math = check_device_math(dtype);
    const int64_t bytes = COUNT * shd_dtype_bytes(dtype);
    void *stored[3] = {0}, *whole[2] = {check_device_memory(bytes), check_device_memory(bytes)};
    for (int i = 0; i < a->inputs; i++) stored[i] = check_device_stored(dtype, COUNT, check_random(COUNT, 5, 3));
    a->run(&math, COUNT, stored, whole);
    for (int i = 0; i < 9; i++) {
        const int64_t first = at[i % 3], length = lengths[i / 3];
        void *part_in[3] = {0}, *part[2] = {check_device_memory(bytes), check_device_memory(bytes)};
        for (int k = 0; k < a->inputs; k++) part_in[k] = shd_element(dtype, stored[k], first);
        a->run(&math, length, part_in, part);
        for (int k = 0; k < a->outputs; k++)
            check_same_bits(a->name, length * shd_dtype_bytes(dtype),
                            shd_element(dtype, check_from_device(bytes, whole[k]), first),
                            check_from_device(bytes, part[k]));
    }
}

static void try_overwriting(const activation *a, sherd_dtype dtype, int output, int input) {
    enum { COUNT = 17 * 257 };
    const shd_math math = check_device_math(dtype);
    const int64_t bytes = COUNT * shd_dtype_bytes(dtype);
    void *stored[3] = {0}, *apart[2], *shared[2];
    for (int i = 0; i < 2; i++) apart[i] = check_device_memory(bytes), shared[i] = check_device_memory(bytes);
    for (int i = 0; i < a->inputs; i++)
        stored[i] = check_device_stored(dtype, COUNT, check_random(COUNT, 20 + (uint64_t)i, 2));
    a->run(&math, COUNT, stored, apart);
    shared[output] = stored[input];
    a->run(&math, COUNT, stored, shared);
    for (int i = 0; i < a->outputs; i++)
        check_same_bits(a->name, bytes, check_from_device(bytes, apart[i]), check_from_device(bytes, shared[i]));
}

Test(cuda_pointwise, activations_give_the_same_bits_in_any_span_and_over_their_inputs) {
    int tried = 0;
    check_device_begin();
    for (int a = 0; a < ACTIVATIONS; a++)
        for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++) {
            try_spans(&activations[a], dtype);
            check_device_next();
            for (int i = 0; i < 6; i++)
                if (activations[a].may_overwrite[i / 3][i % 3]) {
                    try_overwriting(&activations[a], dtype, i / 3, i % 3);
                    check_device_next();
                    tried++;
                }
        }
    cr_assert_eq(tried, 3 * 10);
    check_device_end();
}

Test(cuda_pointwise, extremes_stay_finite_and_nan_passes_through) {
    static const float values[] = {-1e4f, -100, -87.4f, -88.8f, 0, 87.4f, 100, 1e4f, NAN};
    enum { COUNT = sizeof values / sizeof *values };
    check_device_begin();
    const shd_math math = check_device_math(SHERD_FP32);
    float ones[COUNT];
    for (int i = 0; i < COUNT; i++) ones[i] = 1;
    void *x = check_to_device(sizeof values, values), *one = check_to_device(sizeof values, ones);
    for (int a = 0; a < ACTIVATIONS; a++) {
        void *out[2] = {check_device_memory(sizeof values), check_device_memory(sizeof values)};
        activations[a].run(&math, COUNT, (void *[3]){x, one, one}, out);
        for (int k = 0; k < activations[a].outputs; k++) {
            const float *y = check_from_device(sizeof values, out[k]);
            for (int i = 0; i < COUNT - 1; i++) {
                const double v = (double)values[i];
                const bool is_slope = k == 0 && strstr(activations[a].name, "backward");
                if (is_slope)
                    cr_assert_float_eq(y[i],
                                       v > 0                ? 1
                                       : v < 0 || y[i] == 0 ? 0
                                                            : 0.5,
                                       1e-6, "%s(%g)", activations[a].name, v);
                else
                    cr_assert_float_eq(y[i], fmax(0, v), 1e-30, "%s(%g) = %g", activations[a].name, v, (double)y[i]);
            }
            cr_assert(isnan(y[COUNT - 1]) || activations[a].run == relu_backward, "%s", activations[a].name);
        }
    }
    check_device_end();
}

/* --- rotary positions --------------------------------------------------------------------------------------------- */

typedef struct rope_shape {
    int64_t rows, context, heads, head_size, pad;
} rope_shape;

static void try_rope(const rope_shape *s, sherd_dtype dtype, bool inverse) {
    char what[120];
    snprintf(what, sizeof what, "rope rows %d heads %d of %d", (int)s->rows, (int)s->heads, (int)s->head_size);
    const int64_t stride = s->heads * s->head_size + s->pad, count = s->rows * stride;
    const int64_t element = shd_dtype_bytes(dtype);
    const shd_math math = check_device_math(dtype);
    float *x = check_random_of(dtype, count, 1, 1), *table = check_floats(s->context * s->head_size);
    float *plain = check_copy(count, x);
    double *exact = check_widen(count, x);
    const char *before = check_stored(dtype, count, x);
    void *turned = check_device_stored(dtype, count, x);
    shd_op_rope_table(s->context, s->head_size, 10000, table);
    shd_reference_rope_f32(s->rows, s->context, s->heads, s->head_size, stride, 10000, inverse, plain);
    shd_reference_rope_f64(s->rows, s->context, s->heads, s->head_size, stride, 10000, inverse, exact);
    shd_cuda_rope(&math, s->rows, s->context, s->heads, s->head_size, stride,
                  check_to_device(s->context * s->head_size * 4, table), inverse, turned);
    const char *after = check_from_device(count * element, turned);
    check_error(what, dtype, count, after, plain, exact);
    for (int64_t i = 0; i < s->rows; i++) { /* what lies between rows is not touched */
        const int64_t at = (i * stride + stride - s->pad) * element;
        check_same_bits(what, s->pad * element, before + at, after + at);
    }
}

Test(cuda_pointwise, rope_errs_at_most_twice_as_much_as_the_plain_reference) {
    static const rope_shape shapes[] = {{0, 3, 1, 4, 0},       {1, 1, 1, 2, 0},    {36, 18, 5, 8, 3},
                                        {99, 33, 1, 6, 0},     {66, 33, 2, 34, 1}, {64, 32, 3, 16, 16},
                                        {130, 65, 4, 64, 128}, {3, 3, 40, 64, 0}};
    check_device_begin();
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int inverse = 0; inverse < 2; inverse++)
            for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++) {
                try_rope(&shapes[s], dtype, inverse);
                check_device_next();
            }
    check_device_end();
}

/* --- embeddings --------------------------------------------------------------------------------------------------- */

typedef struct embedding_shape {
    int64_t sequences, context, columns, vocabulary;
} embedding_shape;

/* Few sums and no products: as on the CPU, the bits of the plain reference, rounded once, repeated tokens included. */
static void try_embedding(const embedding_shape *s, sherd_dtype dtype, bool positions, bool accumulate) {
    char what[120];
    snprintf(what, sizeof what, "embedding %dx%d of %d", (int)s->sequences, (int)s->context, (int)s->columns);
    const int64_t rows = s->sequences * s->context, count = rows * s->columns, table = s->vocabulary * s->columns;
    const int64_t position_count = s->context * s->columns, bytes = count * shd_dtype_bytes(dtype);
    const int32_t *ids = check_random_ids(rows, 1, (int32_t)s->vocabulary);
    const float *token = check_random_of(dtype, table, 2, 1), *dy = check_random_of(dtype, count, 4, 1);
    const float *position = positions ? check_random_of(dtype, position_count, 3, 1) : NULL;
    float *y = check_floats(count), *dtoken = check_copy(table, token), *dposition = check_floats(position_count);
    shd_reference_embedding_f32(rows, s->context, s->columns, ids, token, position, y);
    shd_reference_embedding_backward_f32(rows, s->context, s->columns, s->vocabulary, ids, dy, accumulate, dtoken,
                                         dposition);
    const shd_math math = check_device_math(dtype);
    const int32_t *device_ids = check_to_device(rows * 4, ids);
    const void *device_dy = check_device_stored(dtype, count, dy);
    void *device_y = check_device_memory(bytes);
    float *device_dtoken = check_to_device(table * 4, token),
          *device_dposition = check_device_memory(position_count * 4);
    shd_cuda_embedding(&math, rows, s->context, s->columns, s->vocabulary, device_ids,
                       check_device_stored(dtype, table, token), check_device_stored(dtype, position_count, position),
                       device_y);
    shd_cuda_embedding_backward(&math, rows, s->context, s->columns, s->vocabulary, device_ids, device_dy, accumulate,
                                device_dtoken, positions ? device_dposition : NULL);
    check_same_bits(what, bytes, check_stored(dtype, count, y), check_from_device(bytes, device_y));
    check_same_bits(what, table * 4, dtoken, check_from_device(table * 4, device_dtoken));
    if (!positions)
        shd_cuda_embedding_backward(&math, rows, s->context, s->columns, s->vocabulary, device_ids, device_dy,
                                    accumulate, NULL, device_dposition);
    check_same_bits(what, position_count * 4, dposition, check_from_device(position_count * 4, device_dposition));
}

Test(cuda_pointwise, embedding_has_the_bits_of_the_plain_reference) {
    static const embedding_shape shapes[] = {{0, 3, 5, 7},      {1, 1, 1, 1},    {2, 18, 17, 173}, {3, 33, 257, 50},
                                             {1, 100, 96, 173}, {5, 64, 136, 3}, {1, 17, 1024, 9}};
    check_device_begin();
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int form = 0; form < 4; form++)
            for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++) {
                try_embedding(&shapes[s], dtype, form & 1, form & 2);
                check_device_next();
            }
    check_device_end();
}
