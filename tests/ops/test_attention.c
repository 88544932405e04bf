#include "runtime/base/dtype.h"
#include "runtime/ops/ops.h"
#include "runtime/ops/reference.h"

#include "check.h"
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

/* Blocks are 64 rows: contexts below, at, and just above one and two of them. */
static const shape shapes[] = {
    {0, 4, 1, 1, 4, 0, 1},
    {1, 1, 1, 1, 1, 0, 1},
    {2, 18, 5, 1, 8, 3, 1},
    {3, 33, 1, 1, 17, 0, 1},
    {1, 64, 4, 2, 16, 5, 1},
    {2, 65, 6, 3, 6, 1, 4},
    {1, 129, 4, 4, 32, 0, 1},
    {1, 200, 6, 2, 64, 7, 1},
    {1, 130, 5, 5, 10, 0, 30},
    {3, 9, 2, 1, 5, 0, 1, 2},
    {2, 200, 4, 2, 16, 3, 1, 40},
    {2, 150, 2, 2, 8, 0, 4, 5},
    {2, 65, 6, 3, 6, 1, 4, 0, 0.5},
    {1, 200, 6, 2, 64, 7, 1, 0, 0.1},
    {2, 150, 2, 1, 8, 0, 1, 30, 0.2},
    {1, 1, 1, 1, 1, 0, 1, 0, 0.5},
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

static stored run(const shape *s, sherd_dtype dtype, const inputs *in, int32_t pool) {
    const int64_t scratch = shd_op_attention_scratch_bytes(dtype, s->context, s->head_size, pool + 1);
    const int64_t scratch_backward = shd_op_attention_backward_scratch_bytes(dtype, s->context, s->head_size, pool + 1);
    stored o = {.a = {.sequences = s->sequences,
                      .context = s->context,
                      .heads = s->heads,
                      .kv_heads = s->kv_heads,
                      .head_size = s->head_size,
                      .q = check_stored(dtype, q_count(s), in->q),
                      .k = check_stored(dtype, kv_count(s), in->k),
                      .v = check_stored(dtype, kv_count(s), in->v),
                      .q_stride = stride_of(s),
                      .kv_stride = kv_stride_of(s),
                      .out = check_stored(dtype, q_count(s), in->blank_q),
                      .out_stride = stride_of(s),
                      .log_sum = check_floats(row_count(s)),
                      .scratch = check_memory(scratch),
                      .starts = document_starts(s),
                      .dropout = dropout_of(s)},
                .dout = check_stored(dtype, q_count(s), in->dout),
                .dq = check_stored(dtype, q_count(s), in->blank_q),
                .dk = check_stored(dtype, kv_count(s), in->blank_kv),
                .dv = check_stored(dtype, kv_count(s), in->blank_kv)};
    shd_op_attention(&check_maths[dtype][pool], &o.a);
    o.a.scratch = check_memory(scratch_backward);
    shd_op_attention_backward(&check_maths[dtype][pool], &o.a, o.dout, o.dq, o.dk, o.dv);
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
    const int64_t q_bytes = q_count(s) * shd_dtype_bytes(dtype), kv_bytes = kv_count(s) * shd_dtype_bytes(dtype);
    shd_reference_attention_operands_f64 exact = exact_operands(s, in.q, in.k, in.v, in.blank_q);
    shd_reference_attention_operands_f32 plain = plain_operands(s, in.q, in.k, in.v, in.blank_q);
    shd_reference_attention_f64(&exact);
    shd_reference_attention_f32(&plain);
    stored fast[CHECK_POOLS];
    for (int p = 0; p < CHECK_POOLS; p++) {
        fast[p] = run(s, dtype, &in, p);
        check_same_bits(what, q_bytes, fast[0].a.out, fast[p].a.out);
        check_same_bits(what, row_count(s) * 4, fast[0].a.log_sum, fast[p].a.log_sum);
        check_same_bits(what, q_bytes, fast[0].dq, fast[p].dq);
        check_same_bits(what, kv_bytes, fast[0].dk, fast[p].dk);
        check_same_bits(what, kv_bytes, fast[0].dv, fast[p].dv);
    }
    check_error_of(what, dtype, roundings_of(dtype), q_count(s), fast[0].a.out, plain.out, exact.out);
    check_error(what, SHERD_FP32, row_count(s), fast[0].a.log_sum, plain.log_sum, exact.log_sum);
    compare_gradients(what, s, dtype, &in, &fast[0], &plain, &exact);
}

Test(attention, errors_are_at_most_twice_the_plain_references) {
    for (int s = 0; s < SHAPES; s++)
        for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++) {
            check_begin();
            try_shape(&shapes[s], dtype);
            check_end();
        }
}

/* Neither output nor gradients may know the future: other keys and values after a row leave it as it was. */
Test(attention, rows_do_not_see_later_ones) {
    check_begin();
    const shape s = {1, 100, 2, 1, 8, 0, 1};
    const float *q = check_random(q_count(&s), 1, 1);
    float *k = check_random(kv_count(&s), 2, 1), *v = check_random(kv_count(&s), 3, 1), *out[2];
    for (int i = 0; i < 2; i++) {
        out[i] = check_floats(q_count(&s));
        shd_attention a = {1, 100, 2, 1, 8, q, k, v, 16, 8, out[i], 16, check_floats(200)};
        a.scratch = check_memory(shd_op_attention_scratch_bytes(SHERD_FP32, 100, 8, 1));
        shd_op_attention(&check_maths[SHERD_FP32][0], &a);
        for (int j = 70 * 8; j < 100 * 8; j++) k[j] = -k[j], v[j] += 1;
    }
    check_same_bits("rows before the change", 70 * 16 * 4, out[0], out[1]);
    cr_assert(memcmp(out[0] + 70 * 16, out[1] + 70 * 16, 16 * 4) != 0);
    check_end();
}

/* The last rows of each sequence alone, over the keys and values of all: the same as those rows of the whole, to the
 * same accuracy, whether one row or several blocks of them. */
static void try_past(const shape *s, sherd_dtype dtype, int64_t last) {
    char what[120];
    snprintf(what, sizeof what, "the last %d of attention %dx%d heads %d/%d of %d", (int)last, (int)s->sequences,
             (int)s->context, (int)s->heads, (int)s->kv_heads, (int)s->head_size);
    const int64_t stride = stride_of(s);
    const inputs in = make_inputs(s, dtype);
    shd_reference_attention_operands_f64 exact = exact_operands(s, in.q, in.k, in.v, in.blank_q);
    shd_reference_attention_f64(&exact);
    shd_reference_attention_operands_f32 plain = plain_operands(s, in.q, in.k, in.v, in.blank_q);
    shd_reference_attention_f32(&plain);

    const int64_t past = s->context - last, count = s->sequences * last * stride;
    float *last_q = check_floats(count), *plain_out = check_floats(count), *before = check_floats(count);
    double *exact_out = check_doubles(count);
    const int32_t *starts = document_starts(s);
    int32_t *last_starts = check_memory((s->sequences * last + 1) * (int64_t)sizeof *last_starts);
    for (int64_t i = 0; starts && i < s->sequences * last; i++)
        last_starts[i] = starts[i / last * s->context + past + i % last];
    for (int64_t i = 0; i < count; i++) {
        const int64_t sequence = i / (last * stride), at = sequence * s->context * stride + past * stride;
        last_q[i] = in.q[at + i % (last * stride)];
        plain_out[i] = plain.out[at + i % (last * stride)];
        exact_out[i] = exact.out[at + i % (last * stride)];
        before[i] = i % stride < stride - s->pad ? 3e4f : plain_out[i]; /* what lies between rows stays */
    }
    void *first = NULL;
    for (int p = 0; p < CHECK_POOLS; p++) {
        void *out = check_stored(dtype, count, before);
        shd_attention fast = {.sequences = s->sequences,
                              .context = last,
                              .heads = s->heads,
                              .kv_heads = s->kv_heads,
                              .head_size = s->head_size,
                              .q = check_stored(dtype, count, last_q),
                              .k = check_stored(dtype, kv_count(s), in.k),
                              .v = check_stored(dtype, kv_count(s), in.v),
                              .q_stride = stride,
                              .kv_stride = kv_stride_of(s),
                              .out = out,
                              .out_stride = stride,
                              .past = past,
                              .starts = starts ? last_starts : NULL};
        fast.log_sum = check_floats(s->sequences * s->heads * last);
        fast.scratch = check_memory(shd_op_attention_scratch_bytes(dtype, s->context, s->head_size, p + 1));
        shd_op_attention(&check_maths[dtype][p], &fast);
        if (p == 0) first = out;
        check_same_bits(what, count * shd_dtype_bytes(dtype), first, out);
    }
    check_error_of(what, dtype, roundings_of(dtype), count, first, plain_out, exact_out);
}

Test(attention, goes_on_after_a_past) {
    static const int64_t lasts[] = {1, 2, 63, 64, 65, 128};
    for (int s = 0; s < SHAPES; s++)
        for (size_t i = 0; i < sizeof lasts / sizeof *lasts; i++)
            for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++) {
                if (lasts[i] > shapes[s].context || shapes[s].dropout > 0) continue;
                check_begin();
                try_past(&shapes[s], dtype, lasts[i]);
                check_end();
            }
}

/* An overflow in one row of q, k, v or dout reaches what depends on it, and is not lost in masks or sums. */
Test(attention, infinity_and_nan_show_in_every_type) {
    static const float bad[] = {INFINITY, NAN};
    const shape s = {1, 70, 2, 1, 8, 0, 1};
    for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++)
        for (int i = 0; i < 8; i++) {
            check_begin();
            inputs in = make_inputs(&s, dtype);
            const float *const spoilt[] = {in.q, in.k, in.v, in.dout};
            ((float *)spoilt[i / 2])[3] = bad[i % 2]; /* of the first token */
            const stored o = run(&s, dtype, &in, 1);
            const float *out = check_loaded(dtype, q_count(&s), o.a.out);
            const float *dq = check_loaded(dtype, q_count(&s), o.dq), *dk = check_loaded(dtype, kv_count(&s), o.dk);
            int in_out = 0, in_gradients = 0;
            for (int64_t e = 0; e < q_count(&s); e++) in_out += !isfinite(out[e]), in_gradients += !isfinite(dq[e]);
            for (int64_t e = 0; e < kv_count(&s); e++) in_gradients += !isfinite(dk[e]);
            cr_assert(in_out > 0 || i / 2 == 3, "input %d: %g does not show", i / 2, (double)bad[i % 2]);
            cr_assert(in_gradients > 0, "input %d: %g does not show in gradients", i / 2, (double)bad[i % 2]);
            check_end();
        }
}

/* What is in a document depends on nothing before it, not even on what is no number. */
Test(attention, documents_do_not_see_earlier_ones) {
    check_begin();
    enum { CONTEXT = 100, BORDER = 70 };
    const shape s = {1, CONTEXT, 2, 1, 8, 0, 1};
    const float *q = check_random(q_count(&s), 1, 1), *dout = check_random(q_count(&s), 4, 1);
    float *k = check_random(kv_count(&s), 2, 1), *v = check_random(kv_count(&s), 3, 1), *out[2], *dq[2], *dk[2];
    int32_t starts[CONTEXT] = {0};
    for (int i = BORDER; i < CONTEXT; i++) starts[i] = BORDER;
    for (int i = 0; i < 2; i++) {
        out[i] = check_floats(q_count(&s));
        dq[i] = check_floats(q_count(&s));
        dk[i] = check_floats(kv_count(&s));
        shd_attention a = {1, CONTEXT, 2, 1, 8, q, k, v, 16, 8, out[i], 16, check_floats(2 * CONTEXT)};
        a.scratch = check_memory(shd_op_attention_backward_scratch_bytes(SHERD_FP32, CONTEXT, 8, 1));
        a.starts = starts;
        shd_op_attention(&check_maths[SHERD_FP32][0], &a);
        shd_op_attention_backward(&check_maths[SHERD_FP32][0], &a, dout, dq[i], dk[i], check_floats(kv_count(&s)));
        for (int j = 0; j < BORDER * 8; j++) k[j] = -k[j], v[j] += 1;
    }
    const int64_t at = BORDER * 16, bytes = (CONTEXT - BORDER) * 16 * 4;
    check_same_bits("rows behind the border", bytes, out[0] + at, out[1] + at);
    check_same_bits("query gradients behind the border", bytes, dq[0] + at, dq[1] + at);
    check_same_bits("key gradients behind the border", bytes / 2, dk[0] + at / 2, dk[1] + at / 2);
    cr_assert(memcmp(out[0] + at - 16, out[1] + at - 16, 16 * 4) != 0);
    check_end();
}

typedef struct problem {
    shd_reference_attention_operands_f64 a;
    const double *dout;
} problem;

static double attention_loss(void *context) {
    problem *p = context;
    shd_reference_attention_f64(&p->a);
    return check_dot(p->a.sequences * p->a.context * p->a.out_stride, p->dout, p->a.out);
}

static void check_derivatives(const shape *s) {
    check_begin();
    const float *q = check_random(q_count(s), 1, 1), *k = check_random(kv_count(s), 2, 1);
    const float *v = check_random(kv_count(s), 3, 1);
    problem p = {exact_operands(s, q, k, v, q), check_widen(q_count(s), check_random(q_count(s), 4, 1))};
    double *dq = check_doubles(q_count(s)), *dk = check_doubles(kv_count(s)), *dv = check_doubles(kv_count(s));
    shd_reference_attention_f64(&p.a);
    shd_reference_attention_backward_f64(&p.a, p.dout, dq, dk, dv);
    check_gradient("dq", q_count(s), (double *)p.a.q, dq, attention_loss, &p);
    check_gradient("dk", kv_count(s), (double *)p.a.k, dk, attention_loss, &p);
    check_gradient("dv", kv_count(s), (double *)p.a.v, dv, attention_loss, &p);
    check_end();
}

Test(attention, reference_gradients_are_the_derivatives) {
    check_derivatives(&(shape){2, 9, 4, 2, 5, 0, 1, 3});
    check_derivatives(&(shape){2, 9, 4, 2, 5, 0, 1, 3, 0.4});
    check_derivatives(&(shape){1, 12, 2, 2, 3, 0, 1, 0, 0.2});
}
