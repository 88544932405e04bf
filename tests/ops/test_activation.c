#include "runtime/base/dtype.h"
#include "runtime/ops/ops.h"
#include "runtime/ops/reference.h"

#include "check.h"
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const int64_t counts[] = {0, 1, 17, 257, 17 * 257, 3 * 16384 + 5};
enum { COUNTS = sizeof counts / sizeof *counts, COUNT_FOR_ERRORS = 257 };

/* Three inputs and two outputs hold every operation here; each form of it reads and writes those it has. */
typedef struct operation {
    const char *name;
    int inputs, outputs;
    void (*fast)(const shd_math *math, int64_t count, void *const in[3], void *const out[2]);
    void (*plain)(int64_t count, float *const in[3], float *const out[2]);
    void (*exact)(int64_t count, double *const in[3], double *const out[2]);
    bool may_overwrite[2][3]; /* [output][input]: the header's promises */
    bool selects;             /* gives an input or 0: what is below 0, or only compared, does not show */
} operation;

static void gelu_fast(const shd_math *p, int64_t n, void *const in[3], void *const out[2]) {
    shd_op_gelu(p, n, in[0], out[0]);
}
static void gelu_plain(int64_t n, float *const in[3], float *const out[2]) { shd_reference_gelu_f32(n, in[0], out[0]); }
static void gelu_exact(int64_t n, double *const in[3], double *const out[2]) {
    shd_reference_gelu_f64(n, in[0], out[0]);
}
static void gelu_backward_fast(const shd_math *p, int64_t n, void *const in[3], void *const out[2]) {
    shd_op_gelu_backward(p, n, in[0], in[1], out[0]);
}
static void gelu_backward_plain(int64_t n, float *const in[3], float *const out[2]) {
    shd_reference_gelu_backward_f32(n, in[0], in[1], out[0]);
}
static void gelu_backward_exact(int64_t n, double *const in[3], double *const out[2]) {
    shd_reference_gelu_backward_f64(n, in[0], in[1], out[0]);
}
static void relu_fast(const shd_math *p, int64_t n, void *const in[3], void *const out[2]) {
    shd_op_relu(p, n, in[0], out[0]);
}
static void relu_plain(int64_t n, float *const in[3], float *const out[2]) { shd_reference_relu_f32(n, in[0], out[0]); }
static void relu_exact(int64_t n, double *const in[3], double *const out[2]) {
    shd_reference_relu_f64(n, in[0], out[0]);
}
static void relu_backward_fast(const shd_math *p, int64_t n, void *const in[3], void *const out[2]) {
    shd_op_relu_backward(p, n, in[0], in[1], out[0]);
}
static void relu_backward_plain(int64_t n, float *const in[3], float *const out[2]) {
    shd_reference_relu_backward_f32(n, in[0], in[1], out[0]);
}
static void relu_backward_exact(int64_t n, double *const in[3], double *const out[2]) {
    shd_reference_relu_backward_f64(n, in[0], in[1], out[0]);
}
static void swiglu_fast(const shd_math *p, int64_t n, void *const in[3], void *const out[2]) {
    shd_op_swiglu(p, n, in[0], in[1], out[0]);
}
static void swiglu_plain(int64_t n, float *const in[3], float *const out[2]) {
    shd_reference_swiglu_f32(n, in[0], in[1], out[0]);
}
static void swiglu_exact(int64_t n, double *const in[3], double *const out[2]) {
    shd_reference_swiglu_f64(n, in[0], in[1], out[0]);
}
static void swiglu_backward_fast(const shd_math *p, int64_t n, void *const in[3], void *const out[2]) {
    shd_op_swiglu_backward(p, n, in[0], in[1], in[2], out[0], out[1]);
}
static void swiglu_backward_plain(int64_t n, float *const in[3], float *const out[2]) {
    shd_reference_swiglu_backward_f32(n, in[0], in[1], in[2], out[0], out[1]);
}
static void swiglu_backward_exact(int64_t n, double *const in[3], double *const out[2]) {
    shd_reference_swiglu_backward_f64(n, in[0], in[1], in[2], out[0], out[1]);
}

static const operation operations[] = {
    {"gelu", 1, 1, gelu_fast, gelu_plain, gelu_exact, {{true}}},
    {"gelu backward", 2, 1, gelu_backward_fast, gelu_backward_plain, gelu_backward_exact, {{false, true}}},
    {"relu", 1, 1, relu_fast, relu_plain, relu_exact, {{true}}, true},
    {"relu backward", 2, 1, relu_backward_fast, relu_backward_plain, relu_backward_exact, {{false, true}}, true},
    {"swiglu", 2, 1, swiglu_fast, swiglu_plain, swiglu_exact, {{true, true}}},
    {"swiglu backward",
     3,
     2,
     swiglu_backward_fast,
     swiglu_backward_plain,
     swiglu_backward_exact,
     {{true, false, true}, {false, true, true}}},
};
enum { OPERATIONS = sizeof operations / sizeof *operations };

/* Inputs that `dtype` holds, as floats in `in` and so stored in `stored`. */
static void fill(const operation *o, sherd_dtype dtype, int64_t count, double scale, float *in[3], void *stored[3]) {
    for (int i = 0; i < o->inputs; i++) {
        in[i] = check_random_of(dtype, count, 10 + (uint64_t)i, scale);
        stored[i] = check_stored(dtype, count, in[i]);
    }
}

static void try_operation(const operation *o, sherd_dtype dtype, int64_t count, double scale) {
    char what[120];
    snprintf(what, sizeof what, "%s of %d at scale %g", o->name, (int)count, scale);
    const int64_t bytes = count * shd_dtype_bytes(dtype);
    float *in[3] = {0}, *plain[2];
    void *stored[3] = {0}, *fast[CHECK_POOLS][2];
    double *wide[3] = {0}, *exact[2];
    fill(o, dtype, count, scale, in, stored);
    for (int i = 0; i < o->inputs; i++) wide[i] = check_widen(count, in[i]);
    for (int i = 0; i < 2; i++) plain[i] = check_floats(count), exact[i] = check_doubles(count);
    o->plain(count, in, plain);
    o->exact(count, wide, exact);
    for (int p = 0; p < CHECK_POOLS; p++) {
        for (int i = 0; i < 2; i++) fast[p][i] = check_memory(bytes);
        o->fast(&check_maths[dtype][p], count, stored, fast[p]);
        for (int i = 0; i < o->outputs; i++) check_same_bits(what, bytes, fast[0][i], fast[p][i]);
    }
    for (int i = 0; i < o->outputs && count >= COUNT_FOR_ERRORS; i++)
        check_error(what, dtype, count, fast[0][i], plain[i], exact[i]);
}

/* A few numbers are too few to compare two errors: any rounding may be lucky. But a number's result must not depend on
 * how many others there are or where it stands: a span from an odd place on has the bits of the same place of a long
 * one. */
static void try_spans(const operation *o, sherd_dtype dtype) {
    static const int64_t at[] = {0, 1, 13, 100, 255}, lengths[] = {1, 15, 16, 17, 156};
    float *in[3] = {0};
    void *stored[3] = {0}, *whole[2] = {check_floats(512), check_floats(512)};
    fill(o, dtype, 512, 3, in, stored);
    o->fast(&check_maths[dtype][0], 512, stored, whole);
    for (int i = 0; i < 25; i++) {
        const int64_t first = at[i % 5], length = lengths[i / 5];
        void *part_in[3], *part[2] = {check_floats(256), check_floats(256)};
        for (int k = 0; k < 3; k++) part_in[k] = stored[k] ? shd_element(dtype, stored[k], first) : NULL;
        o->fast(&check_maths[dtype][0], length, part_in, part);
        for (int out = 0; out < o->outputs; out++)
            check_same_bits(o->name, length * shd_dtype_bytes(dtype), shd_element(dtype, whole[out], first), part[out]);
    }
}

Test(activation, each_element_has_the_same_bits_in_any_span) {
    for (int n = 0; n < OPERATIONS; n++)
        for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++) {
            check_begin();
            try_spans(&operations[n], dtype);
            check_end();
        }
}

Test(activation, errors_are_at_most_twice_the_plain_references) {
    static const double scales[] = {1e-4, 1, 6, 40};
    for (int o = 0; o < OPERATIONS; o++)
        for (int c = 0; c < COUNTS; c++)
            for (int s = 0; s < 4; s++)
                for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++) {
                    check_begin();
                    try_operation(&operations[o], dtype, counts[c], scales[s]);
                    check_end();
                }
}

/* The bits of separate memory, `output` being where `input` is. */
static void try_overwriting(const operation *o, sherd_dtype dtype, int output, int input) {
    const int64_t count = 16384 + 257, bytes = count * shd_dtype_bytes(dtype);
    float *in[3] = {0};
    void *stored[3] = {0}, *apart[2] = {check_memory(bytes), check_memory(bytes)};
    void *shared[2] = {check_memory(bytes), check_memory(bytes)};
    fill(o, dtype, count, 2, in, stored);
    o->fast(&check_maths[dtype][1], count, stored, apart);
    shared[output] = stored[input];
    o->fast(&check_maths[dtype][1], count, stored, shared);
    for (int i = 0; i < o->outputs; i++) check_same_bits(o->name, bytes, apart[i], shared[i]);
}

Test(activation, outputs_may_overwrite_the_inputs_the_header_names) {
    int tried = 0;
    for (int n = 0; n < OPERATIONS; n++)
        for (int output = 0; output < operations[n].outputs; output++)
            for (int input = 0; input < 3; input++) {
                if (!operations[n].may_overwrite[output][input]) continue;
                for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++) {
                    check_begin();
                    try_overwriting(&operations[n], dtype, output, input);
                    check_end();
                }
                tried++;
            }
    cr_assert_eq(tried, 10);
}

/* Near zero and in the tails an error relative to the largest output would hide everything: there each element answers
 * for itself. */
Test(activation, gelu_and_silu_are_good_relative_to_each_value) {
    enum { COUNT = 40001 };
    check_begin();
    float *x = check_floats(COUNT), *one = check_floats(COUNT), *y = check_floats(COUNT);
    double *exact = check_doubles(COUNT);
    for (int i = 0; i < COUNT; i++) x[i] = (float)(i - COUNT / 2) * 5e-4f, one[i] = 1;
    shd_op_gelu(&check_maths[SHERD_FP32][0], COUNT, x, y);
    for (int i = 0; i < COUNT; i++) { /* x·sigmoid(2u): the tanh form would lose the tail even in double */
        const double v = (double)x[i], u = 2 * sqrt(2 / M_PI) * (v + 0.044715 * v * v * v);
        exact[i] = v / (1 + exp(-u));
        /* The exponent itself is rounded: its ulp is part of the answer. */
        const double bound = (4e-7 + 1.5e-7 * fmax(0, -u)) * fabs(exact[i]) + 1e-36;
        cr_assert(fabs((double)y[i] - exact[i]) <= bound, "gelu(%g) = %g, not %g", v, (double)y[i], exact[i]);
    }
    shd_op_swiglu(&check_maths[SHERD_FP32][0], COUNT, x, one, y);
    for (int i = 0; i < COUNT; i++) {
        const double v = (double)x[i];
        exact[i] = v / (1 + exp(-v));
        cr_assert(fabs((double)y[i] - exact[i]) <= 4e-7 * fabs(exact[i]), "silu(%g) = %g, not %g", v, (double)y[i],
                  exact[i]);
    }
    check_end();
}

Test(activation, extremes_stay_finite_and_nan_passes_through) {
    check_begin();
    static const float values[] = {-3e38f, -1e4f, -100, -87.4f, -88.8f, 0, 87.4f, 100, 1e4f};
    enum { COUNT = sizeof values / sizeof *values };
    float x[COUNT + 1], ones[COUNT + 1], y[COUNT + 1], z[COUNT + 1];
    for (int i = 0; i < COUNT; i++) x[i] = values[i];
    for (int i = 0; i <= COUNT; i++) ones[i] = 1;
    x[COUNT] = NAN;
    shd_op_gelu(&check_maths[SHERD_FP32][0], COUNT + 1, x, y);
    for (int i = 1; i < COUNT; i++) cr_assert_float_eq(y[i], fmax(0, (double)x[i]), 1e-30, "gelu(%g)", (double)x[i]);
    cr_assert(isnan(y[COUNT]));
    shd_op_gelu_backward(&check_maths[SHERD_FP32][0], COUNT + 1, x, ones, y);
    for (int i = 1; i < COUNT; i++)
        cr_assert_float_eq(y[i], x[i] > 0 ? 1 : x[i] < 0 ? 0 : 0.5, 1e-6, "gelu'(%g)", (double)x[i]);
    cr_assert(isnan(y[COUNT]));
    shd_op_swiglu(&check_maths[SHERD_FP32][0], COUNT + 1, x, ones, y);
    for (int i = 1; i < COUNT; i++) cr_assert_float_eq(y[i], fmax(0, (double)x[i]), 1e-30, "silu(%g)", (double)x[i]);
    cr_assert(isnan(y[COUNT]));
    shd_op_swiglu_backward(&check_maths[SHERD_FP32][0], COUNT + 1, x, ones, ones, y, z);
    for (int i = 1; i < COUNT; i++) cr_assert(isfinite(y[i]) && isfinite(z[i]), "silu'(%g)", (double)x[i]);
    cr_assert(isnan(y[COUNT]) && isnan(z[COUNT]));
    check_end();
}

/* What 16 bits cannot hold becomes infinite, and what is infinite or no number on its way in is so on its way out: an
 * overflow must not go unseen. */
Test(activation, overflow_infinity_and_nan_show_in_16_bits) {
    for (sherd_dtype dtype = SHERD_BF16; dtype <= SHERD_FP16; dtype++)
        for (int n = 0; n < OPERATIONS; n++)
            for (int input = 0; input < operations[n].inputs; input++) {
                const operation *o = &operations[n];
                const float bad[] = {INFINITY, -INFINITY, NAN};
                check_begin();
                for (int b = 0; b < 3; b++) {
                    if (o->selects && (o->inputs == 1 ? bad[b] < 0 : input == 0)) continue;
                    float in[3][17];
                    void *stored[3], *out[2] = {check_floats(17), check_floats(17)};
                    for (int i = 0; i < 3; i++) {
                        for (int k = 0; k < 17; k++) in[i][k] = 1;
                        for (int k = 3; i == input && k < 17; k += 13) in[i][k] = bad[b]; /* in a vector, and behind */
                        stored[i] = check_stored(dtype, 17, in[i]);
                    }
                    o->fast(&check_maths[dtype][0], 17, stored, out);
                    int shown = 0;
                    for (int i = 0; i < o->outputs; i++) {
                        const float *y = check_loaded(dtype, 17, out[i]);
                        shown += !isfinite(y[3]) && !isfinite(y[16]);
                        cr_assert(isfinite(y[0]) && isfinite(y[15]), "%s", o->name);
                    }
                    cr_assert_gt(shown, 0, "%s: %g in input %d does not show", o->name, (double)bad[b], input);
                }
                check_end();
            }
    check_begin();
    float big[] = {60000, 60000};
    const void *x = check_stored(SHERD_FP16, 2, big);
    void *y = check_memory(4);
    shd_op_swiglu(&check_maths[SHERD_FP16][0], 2, x, x, y);
    cr_assert(isinf(check_loaded(SHERD_FP16, 2, y)[1]));
    check_end();
}

typedef struct problem {
    int64_t count;
    double *x, *up, *dy, *y;
} problem;

static double gelu_loss(void *context) {
    problem *p = context;
    shd_reference_gelu_f64(p->count, p->x, p->y);
    return check_dot(p->count, p->dy, p->y);
}

static double swiglu_loss(void *context) {
    problem *p = context;
    shd_reference_swiglu_f64(p->count, p->x, p->up, p->y);
    return check_dot(p->count, p->dy, p->y);
}

Test(activation, reference_gradients_are_the_derivatives) {
    check_begin();
    problem p = {.count = 257};
    p.x = check_widen(p.count, check_random(p.count, 1, 2));
    p.up = check_widen(p.count, check_random(p.count, 2, 2));
    p.dy = check_widen(p.count, check_random(p.count, 3, 1));
    p.y = check_doubles(p.count);
    double *dx = check_doubles(p.count), *dup = check_doubles(p.count);
    shd_reference_gelu_backward_f64(p.count, p.x, p.dy, dx);
    check_gradient("gelu", p.count, p.x, dx, gelu_loss, &p);
    shd_reference_swiglu_backward_f64(p.count, p.x, p.up, p.dy, dx, dup);
    check_gradient("swiglu gate", p.count, p.x, dx, swiglu_loss, &p);
    check_gradient("swiglu up", p.count, p.up, dup, swiglu_loss, &p);
    check_end();
}
