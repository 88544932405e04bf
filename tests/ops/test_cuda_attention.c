#include "runtime/base/dtype.h"
#include "runtime/ops/ops.h"
#include "runtime/ops/reference.h"

#include "check_device.h"
#include "runtime/ops/cuda/cuda_ops.h"
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct shape {
    int64_t sequences, context, heads, kv_heads, head_size, pad;
    double scale;     /* of queries: how peaked the softmax is */
    int64_t document; /* about so many tokens a document, attention staying within; 0: one document */
    double dropout;
} shape;

/* Tiles are 16 rows, or 8 of large heads: contexts below, at, and just above one and two of them. */
static const shape shapes[] = {
    {0, 4, 1, 1, 4, 0, 1},           {1, 1, 1, 1, 1, 0, 1},           {2, 18, 5, 1, 8, 3, 1},
    {3, 33, 1, 1, 17, 0, 1},         {1, 64, 4, 2, 16, 5, 1},         {2, 65, 6, 3, 6, 1, 4},
    {1, 17, 2, 2, 128, 0, 1},        {1, 9, 2, 1, 200, 3, 1},         {1, 70, 5, 5, 10, 0, 30},
    {3, 9, 2, 1, 5, 0, 1, 2},        {2, 100, 4, 2, 16, 3, 1, 40},    {2, 65, 6, 3, 6, 1, 4, 0, 0.5},
    {1, 70, 6, 2, 64, 7, 1, 0, 0.1}, {2, 50, 2, 1, 8, 0, 1, 30, 0.2}, {1, 1, 1, 1, 1, 0, 1, 0, 0.5},
    {2, 16, 4, 2, 48, 0, 1},         {1, 5, 3, 1, 3, 0, 1},           {1, 17, 2, 1, SHD_DEVICE_HEAD_MAX, 0, 1, 5, 0.3},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* In bf16 probabilities and the gradients of scores are rounded, then the outputs. */
static int roundings_of(sherd_dtype dtype) { return dtype == SHERD_BF16 ? 2 : 1; }

static int64_t q_count(const shape *s) { return s->sequences * s->context * (s->heads * s->head_size + s->pad); }
static int64_t kv_count(const shape *s) { return s->sequences * s->context * (s->kv_heads * s->head_size + s->pad); }
static int64_t row_count(const shape *s) { return s->sequences * s->heads * s->context; }

/* Documents of 1 to 2·document - 1 tokens, other ones in every sequence. */
static const int32_t *document_starts(const shape *s) {
    if (s->document == 0) return NULL;
    int32_t *starts = check_memory(s->sequences * s->context * (int64_t)sizeof *starts);
    uint32_t state = 1;
    for (int64_t i = 0, left = 0, start = 0; i < s->sequences * s->context; i++, left--) {
        if (left == 0 || i % s->context == 0) {
            state = state * 1664525u + 1013904223u;
            left = 1 + (state >> 16) % (2 * s->document - 1);
            start = i % s->context;
        }
        starts[i] = (int32_t)start;
    }
    return starts;
}

static const shd_dropout *dropout_of(const shape *s) {
    if (s->dropout == 0) return NULL;
    shd_dropout *dropout = check_memory(sizeof *dropout);
    *dropout = shd_dropout_make(s->dropout, 11, 1000);
    return dropout;
}

static int64_t stride_of(const shape *s) { return s->heads * s->head_size + s->pad; }
static int64_t kv_stride_of(const shape *s) { return s->kv_heads * s->head_size + s->pad; }

static shd_reference_attention_operands_f64 exact_operands(const shape *s, const float *q, const float *k,
                                                           const float *v, const float *out) {
    return (shd_reference_attention_operands_f64){s->sequences,
                                                  s->context,
                                                  s->heads,
                                                  s->kv_heads,
                                                  s->head_size,
                                                  check_widen(q_count(s), q),
                                                  check_widen(kv_count(s), k),
                                                  check_widen(kv_count(s), v),
                                                  stride_of(s),
                                                  kv_stride_of(s),
                                                  check_widen(q_count(s), out),
                                                  stride_of(s),
                                                  check_doubles(row_count(s)),
                                                  check_doubles(s->context),
                                                  document_starts(s),
                                                  dropout_of(s)};
}

static shd_reference_attention_operands_f32 plain_operands(const shape *s, const float *q, const float *k,
                                                           const float *v, const float *out) {
    return (shd_reference_attention_operands_f32){s->sequences,
                                                  s->context,
                                                  s->heads,
                                                  s->kv_heads,
                                                  s->head_size,
                                                  q,
                                                  k,
                                                  v,
                                                  stride_of(s),
                                                  kv_stride_of(s),
                                                  check_copy(q_count(s), out),
                                                  stride_of(s),
                                                  check_floats(row_count(s)),
                                                  check_floats(s->context),
                                                  document_starts(s),
                                                  dropout_of(s)};
}

/* What one call of the operation, forward and backward, reads and leaves. */
typedef struct stored {
    shd_attention a;
    void *dout, *dq, *dk, *dv;
} stored;

/* Numbers that the type holds. Outputs start as copies of blanks, so that what lies between rows is compared too. */
typedef struct inputs {
    const float *q, *k, *v, *dout, *blank_q, *blank_kv;
} inputs;

static inputs make_inputs(const shape *s, sherd_dtype dtype) {
    return (inputs){check_random_of(dtype, q_count(s), 1, s->scale), check_random_of(dtype, kv_count(s), 2, 1),
                    check_random_of(dtype, kv_count(s), 3, 1),       check_random_of(dtype, q_count(s), 4, 1),
                    check_random_of(dtype, q_count(s), 5, 1),        check_random_of(dtype, kv_count(s), 6, 1)};
}

/* Forward and backward on the device; what comes back is in memory of the host. */
static stored run(const shape *s, sherd_dtype dtype, const inputs *in) {
    const shd_math math = check_device_math(dtype);
    const int64_t q_bytes = q_count(s) * shd_dtype_bytes(dtype), kv_bytes = kv_count(s) * shd_dtype_bytes(dtype);
    const int64_t starts_bytes = s->sequences * s->context * (int64_t)sizeof(int32_t);
    stored o = {.a = {.sequences = s->sequences,
                      .context = s->context,
                      .heads = s->heads,
                      .kv_heads = s->kv_heads,
                      .head_size = s->head_size,
                      .q = check_device_stored(dtype, q_count(s), in->q),
                      .k = check_device_stored(dtype, kv_count(s), in->k),
                      .v = check_device_stored(dtype, kv_count(s), in->v),
                      .q_stride = stride_of(s),
                      .kv_stride = kv_stride_of(s),
                      .out = check_device_stored(dtype, q_count(s), in->blank_q),
                      .out_stride = stride_of(s),
                      .log_sum = check_device_memory(row_count(s) * 4),
                      .scratch = check_device_memory(shd_cuda_attention_scratch_bytes(dtype, s->sequences, s->context,
                                                                                      s->heads, s->head_size, 1, true)),
                      .starts = check_to_device(starts_bytes, document_starts(s)),
                      .dropout = dropout_of(s)},
                .dout = check_device_stored(dtype, q_count(s), in->dout),
                .dq = check_device_stored(dtype, q_count(s), in->blank_q),
                .dk = check_device_stored(dtype, kv_count(s), in->blank_kv),
                .dv = check_device_stored(dtype, kv_count(s), in->blank_kv)};
    shd_cuda_attention(&math, &o.a);
    shd_cuda_attention_backward(&math, &o.a, o.dout, o.dq, o.dk, o.dv);
    o.a.out = check_from_device(q_bytes, o.a.out);
    o.a.log_sum = check_from_device(row_count(s) * 4, o.a.log_sum);
    o.dq = check_from_device(q_bytes, o.dq);
    o.dk = check_from_device(kv_bytes, o.dk);
    o.dv = check_from_device(kv_bytes, o.dv);
    return o;
}

/* Backward is given what forward stored, so the references' backward is too: in 16 bits that is a rounded output. */
static void compare_gradients(const char *what, const shape *s, sherd_dtype dtype, const inputs *in, const stored *fast,
                              shd_reference_attention_operands_f32 *plain,
                              shd_reference_attention_operands_f64 *exact) {
    if (dtype != SHERD_FP32) {
        plain->out = check_loaded(dtype, q_count(s), fast->a.out);
        exact->out = check_widen(q_count(s), plain->out);
    }
    float *dq = check_copy(q_count(s), in->blank_q), *dk = check_copy(kv_count(s), in->blank_kv);
    float *dv = check_copy(kv_count(s), in->blank_kv);
    double *exact_dq = check_widen(q_count(s), in->blank_q), *exact_dk = check_widen(kv_count(s), in->blank_kv);
    double *exact_dv = check_widen(kv_count(s), in->blank_kv);
    shd_reference_attention_backward_f32(plain, in->dout, dq, dk, dv);
    shd_reference_attention_backward_f64(exact, check_widen(q_count(s), in->dout), exact_dq, exact_dk, exact_dv);
    check_error_of(what, dtype, roundings_of(dtype), q_count(s), fast->dq, dq, exact_dq);
    check_error_of(what, dtype, roundings_of(dtype), kv_count(s), fast->dk, dk, exact_dk);
    check_error_of(what, dtype, roundings_of(dtype), kv_count(s), fast->dv, dv, exact_dv);
}

static void try_shape(const shape *s, sherd_dtype dtype) {
    char what[120];
    snprintf(what, sizeof what, "attention %dx%d heads %d/%d of %d", (int)s->sequences, (int)s->context, (int)s->heads,
             (int)s->kv_heads, (int)s->head_size);
    const inputs in = make_inputs(s, dtype);
    shd_reference_attention_operands_f64 exact = exact_operands(s, in.q, in.k, in.v, in.blank_q);
    shd_reference_attention_operands_f32 plain = plain_operands(s, in.q, in.k, in.v, in.blank_q);
    shd_reference_attention_f64(&exact);
    shd_reference_attention_f32(&plain);
    const stored fast = run(s, dtype, &in);
    check_error_of(what, dtype, roundings_of(dtype), q_count(s), fast.a.out, plain.out, exact.out);
    check_error(what, SHERD_FP32, row_count(s), fast.a.log_sum, plain.log_sum, exact.log_sum);
    compare_gradients(what, s, dtype, &in, &fast, &plain, &exact);
}

Test(cuda_attention, errors_are_at_most_twice_the_plain_references, .timeout = 200) {
    check_device_begin();
    for (int s = 0; s < SHAPES; s++)
        for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++) {
            try_shape(&shapes[s], dtype);
            check_device_next();
        }
    check_device_end();
}

/* Overflows must reach what depends on them, also where all that a query sees of a tile is no number: here a document
 * begins with the last key of the first tile. */
Test(cuda_attention, infinity_and_nan_show_in_all_that_sees_them, .timeout = 60) {
    enum { CONTEXT = 40, SIZE = 8, BORDER = 15 };
    static const float bad[] = {INFINITY, NAN};
    int32_t starts[CONTEXT] = {0};
    for (int i = BORDER; i < CONTEXT; i++) starts[i] = BORDER;
    check_device_begin();
    for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++)
        for (int b = 0; b < 2; b++) {
            const shape s = {1, CONTEXT, 1, 1, SIZE, 0, 1};
            const shd_math math = check_device_math(dtype);
            const inputs in = make_inputs(&s, dtype);
            for (int c = 0; c < SIZE; c++) ((float *)in.k)[BORDER * SIZE + c] = bad[b];
            const int64_t count = q_count(&s), bytes = count * shd_dtype_bytes(dtype);
            shd_attention a = {1,
                               CONTEXT,
                               1,
                               1,
                               SIZE,
                               check_device_stored(dtype, count, in.q),
                               check_device_stored(dtype, count, in.k),
                               check_device_stored(dtype, count, in.v),
                               SIZE,
                               SIZE,
                               check_device_memory(bytes),
                               SIZE,
                               check_device_memory(CONTEXT * 4)};
            a.starts = check_to_device(sizeof starts, starts);
            shd_cuda_attention(&math, &a);
            const float *out = check_loaded(dtype, count, check_from_device(bytes, a.out));
            for (int i = 0; i < CONTEXT; i++)
                cr_assert(i < BORDER || !isnan(bad[b]) || isnan(out[i * SIZE]), "type %d: row %d lost it", (int)dtype,
                          i);
            cr_assert(!isfinite(out[BORDER * SIZE]) && isfinite(out[0]), "type %d", (int)dtype);
            check_device_next();
        }
    check_device_end();
}

/* Backward is several blocks' work, in any order: that must not show. */
Test(cuda_attention, gives_the_same_bits_each_time, .timeout = 60) {
    const shape s = {2, 50, 4, 2, 8, 1, 1, 30, 0.2};
    check_device_begin();
    for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++) {
        const int64_t q_bytes = q_count(&s) * shd_dtype_bytes(dtype), kv_bytes = kv_count(&s) * shd_dtype_bytes(dtype);
        const inputs in = make_inputs(&s, dtype);
        const stored once = run(&s, dtype, &in), again = run(&s, dtype, &in);
        check_same_bits("out", q_bytes, once.a.out, again.a.out);
        check_same_bits("log_sum", row_count(&s) * 4, once.a.log_sum, again.a.log_sum);
        check_same_bits("dq", q_bytes, once.dq, again.dq);
        check_same_bits("dk", kv_bytes, once.dk, again.dk);
        check_same_bits("dv", kv_bytes, once.dv, again.dv);
        check_device_next();
    }
    check_device_end();
}
