/* Causal attention in blocks of query rows: a block's scores against all keys up to its last row, in one thread's
 * scratch memory.
 *
 * Forward: one task a (sequence, head, block). Backward: one task a (sequence, key-value head), which walks the query
 * heads of its group in order and each head's blocks from the last to the first. The last block meets every key, so the
 * first product writes all of dk and dv and all others add to them: no clearing, no atomics, one order. Probabilities
 * are computed again from log_sum. FlashAttention-2 (Dao 2023) gives the formulas: D = rowsum(dout∘out), dS = P∘(dP −
 * D)·scale.
 *
 * With dropout out = (M∘P)·V, M being the mask with its scale, drawn again in backward. Then dV = (M∘P)ᵀ·dout and dP =
 * M∘(dout·Vᵀ). What the softmax takes off dP is still D: Σ_j P_ij·dP_ij = Σ_j P_ij·M_ij·Σ_c dout_ic·V_jc = Σ_c
 * dout_ic·Σ_j M_ij·P_ij·V_jc = Σ_c dout_ic·out_ic. Rows of P sum to one before they are dropped: log_sum does not see
 * M.
 *
 * Scores are float32, and so is what products add up to. In fp32 all is read and written where it is. In 16 bits results
 * are made in scratch and rounded on their way out. bf16 goes into products as it is stored, and so do probabilities and
 * the gradients of scores, rounded for it once they are known. fp16 is widened into scratch first: its range is too
 * small for the gradients of scores. */
#include "runtime/ops/ops.h"

#include "runtime/base/cut.h"
#include "runtime/base/dtype.h"
#include "runtime/base/random.h"
#include "runtime/ops/half_product.h"
#include "runtime/ops/kernels/kernels.h"
#include "runtime/ops/product.h"

#include <math.h>
#include <string.h>

enum { BLOCK_ROWS = 64, ALIGNMENT = 64 };

/* Rows of scores are an odd number of cache lines apart, so that a column of them does not fall into one cache set. */
static int64_t score_stride(int64_t context) { return shd_round_up(context, 32) + 16; }

/* A thread's scratch memory, as byte offsets: two matrices of scores, a block of query rows against every key; room for
 * float32 forms of a block's rows and of one head's keys and values; and what products need. Forward has nothing that
 * starts with d. */
typedef struct layout {
    int64_t scores, dscores;
    int64_t q, out, dout, dq;
    int64_t k, v, dk, dv;
    int64_t product;
    int64_t bytes;
} layout;

static int64_t take(int64_t *end, int64_t rows, int64_t columns) {
    const int64_t begin = *end;
    *end += shd_round_up(rows * columns * (int64_t)sizeof(float), ALIGNMENT);
    return begin;
}

/* The type in which products take what is stored as `dtype`. */
static sherd_dtype operand_type(sherd_dtype dtype) { return dtype == SHERD_BF16 ? SHERD_BF16 : SHERD_FP32; }

static layout lay_out(sherd_dtype dtype, int64_t context, int64_t head_size, bool backward) {
    const int64_t rows = shd_min(BLOCK_ROWS, context);
    layout l = {0};
    l.scores = take(&l.bytes, rows, score_stride(context));
    if (backward) l.dscores = take(&l.bytes, rows, score_stride(context));
    if (operand_type(dtype) != dtype) {
        l.q = take(&l.bytes, rows, head_size);
        l.dout = take(&l.bytes, rows, head_size);
        l.k = take(&l.bytes, context, head_size);
        l.v = take(&l.bytes, context, head_size);
    }
    if (dtype == SHERD_FP32) return l;
    l.out = l.dq = take(&l.bytes, rows, head_size);
    l.dk = take(&l.bytes, backward ? context : 0, head_size);
    l.dv = take(&l.bytes, backward ? context : 0, head_size);
    l.product = l.bytes;
    if (dtype == SHERD_BF16) l.bytes += shd_round_up(shd_half_product_scratch_bytes(), ALIGNMENT);
    return l;
}

int64_t shd_op_attention_scratch_bytes(sherd_dtype dtype, int64_t context, int64_t head_size, int32_t threads) {
    return lay_out(dtype, context, head_size, false).bytes * threads;
}

int64_t shd_op_attention_backward_scratch_bytes(sherd_dtype dtype, int64_t context, int64_t head_size,
                                                int32_t threads) {
    return lay_out(dtype, context, head_size, true).bytes * threads;
}

typedef struct attention_call {
    const shd_attention *a;
    const shd_kernels *kernels, *float_kernels;
    sherd_dtype dtype;
    layout layout;
    float scale;         /* 1/√head_size */
    int64_t block_count; /* of a sequence */
    const void *dout;
    void *dq, *dk, *dv;
} attention_call;

/* Rows of one head, or of scores, in fp32 or bf16. */
typedef struct matrix {
    sherd_dtype dtype;
    void *at;
    int64_t stride;
} matrix;

static float *row_of(matrix m, int64_t row) { return (float *)m.at + row * m.stride; }

/* The operand of `rows` rows that are stored from element `index` of `array` on, `stride` apart; `room` is where it may
 * be made. */
static matrix read_rows(const attention_call *call, const void *array, int64_t index, int64_t stride, int64_t rows,
                        void *room) {
    const int64_t size = call->a->head_size;
    const void *first = shd_const_element(call->dtype, array, index);
    const sherd_dtype operand = operand_type(call->dtype);
    if (operand == call->dtype) return (matrix){operand, (void *)(uintptr_t)first, stride};
    for (int64_t i = 0; i < rows; i++)
        call->kernels->widen(size, shd_const_element(call->dtype, first, i * stride), (float *)room + i * size);
    return (matrix){operand, room, size};
}

/* Where a product makes such rows; write_rows then brings `factors[i]` times its row i, or the rows as they are, to where
 * they are stored. */
static matrix rows_to_write(const attention_call *call, void *array, int64_t index, int64_t stride, void *room) {
    return call->dtype == SHERD_FP32 ? (matrix){SHERD_FP32, (float *)array + index, stride}
                                     : (matrix){SHERD_FP32, room, call->a->head_size};
}

static void write_rows(const attention_call *call, matrix from, const float *factors, int64_t rows, void *array,
                       int64_t index, int64_t stride) {
    if (call->dtype == SHERD_FP32 && !factors) return;
    for (int64_t i = 0; i < rows; i++)
        call->kernels->scale(call->a->head_size, factors ? factors[i] : 1.0f, row_of(from, i),
                             shd_element(call->dtype, array, index + i * stride));
}

/* A block of query rows of one head. */
typedef struct query_block {
    int64_t first, rows, keys; /* keys [0, past + first + rows) */
    int64_t q_at, kv_at, out_at, log_sum_at;
    const int32_t *starts; /* of the rows, or NULL */
    shd_mask_row mask;     /* of its first row, with dropout */
} query_block;

/* The first key that row `row` of the block sees. */
static int64_t first_seen(const query_block *b, int64_t row) { return b->starts ? b->starts[row] : 0; }

static query_block block_of(const attention_call *call, int64_t sequence, int64_t head, int64_t block) {
    const shd_attention *a = call->a;
    query_block b;
    b.first = shd_cut(a->context, BLOCK_ROWS, block, &b.rows);
    b.keys = a->past + b.first + b.rows;
    const int64_t row = sequence * a->context, kv_head = head / (a->heads / a->kv_heads);
    b.q_at = (row + b.first) * a->q_stride + head * a->head_size;
    b.kv_at = sequence * (a->past + a->context) * a->kv_stride + kv_head * a->head_size;
    b.out_at = (row + b.first) * a->out_stride + head * a->head_size;
    b.log_sum_at = (sequence * a->heads + head) * a->context + b.first;
    b.starts = a->starts ? a->starts + row + b.first : NULL;
    if (a->dropout)
        b.mask = (shd_mask_row){.key = shd_random_subkey(a->dropout->key, (uint64_t)head),
                                .sequence = (uint64_t)(a->dropout->first_sequence + sequence),
                                .row = (uint32_t)b.first,
                                .drop = a->dropout->drop,
                                .scale = a->dropout->scale};
    return b;
}

/* The mask of row `row` of the block. */
static shd_mask_row mask_of(const query_block *b, int64_t row) {
    shd_mask_row mask = b->mask;
    mask.row += (uint32_t)row;
    return mask;
}

/* Zeroes the keys of a row that are before `from` or not before `end`. */
static void mask(float *row, int64_t from, int64_t end, int64_t keys) {
    memset(row, 0, sizeof(float) * (size_t)from);
    memset(row + end, 0, sizeof(float) * (size_t)(keys - end));
}

static char *room_of(const attention_call *call, int32_t worker) {
    return (char *)call->a->scratch + worker * call->layout.bytes;
}

/* c[m,n] = factor·op(a)·op(b) (+ c); with bf16 operands the factor is 1 where c is added. */
static void multiply(const attention_call *call, char *room, bool a_transposed, bool b_transposed, int64_t m, int64_t n,
                     int64_t k, float factor, matrix a, matrix b, bool accumulate, matrix c) {
    if (a.dtype == SHERD_FP32) {
        shd_product_run(a_transposed, b_transposed, m, n, k, factor, a.at, a.stride, b.at, b.stride, accumulate, c.at,
                        c.stride);
        return;
    }
    const shd_half_product product = {
        .dtype = a.dtype,
        .a_transposed = a_transposed,
        .b_transposed = b_transposed,
        .m = m,
        .n = n,
        .k = k,
        .a = a.at,
        .lda = a.stride,
        .b = b.at,
        .ldb = b.stride,
        .c_dtype = SHERD_FP32,
        .c = c.at,
        .ldc = c.stride,
        .accumulate = accumulate,
        .scratch = room + call->layout.product,
    };
    shd_half_product_run(&product);
    for (int64_t i = 0; i < m && factor != 1.0f; i++) call->float_kernels->scale(n, factor, row_of(c, i), row_of(c, i));
}

/* Scores as an operand of products: in bf16 rounded in place, each row beginning where it began. */
static matrix operand_of(const attention_call *call, matrix scores, int64_t rows, int64_t keys) {
    if (operand_type(call->dtype) == SHERD_FP32) return scores;
    for (int64_t i = 0; i < rows; i++) call->kernels->scale(keys, 1.0f, row_of(scores, i), row_of(scores, i));
    return (matrix){SHERD_BF16, scores.at, 2 * scores.stride};
}

static void forward_task(void *argument, int64_t index, int32_t worker) {
    const attention_call *call = argument;
    const shd_attention *a = call->a;
    const layout *l = &call->layout;
    char *room = room_of(call, worker);
    /* The longest blocks first, so that no thread ends with one alone. */
    const int64_t block = call->block_count - 1 - index / (a->sequences * a->heads);
    const int64_t pair = index % (a->sequences * a->heads);
    const query_block b = block_of(call, pair / a->heads, pair % a->heads, block);
    const matrix scores = {SHERD_FP32, room + l->scores, score_stride(a->past + a->context)};
    const matrix q = read_rows(call, a->q, b.q_at, a->q_stride, b.rows, room + l->q);
    const matrix k = read_rows(call, a->k, b.kv_at, a->kv_stride, b.keys, room + l->k);
    const matrix v = read_rows(call, a->v, b.kv_at, a->kv_stride, b.keys, room + l->v);
    float inverse_sum[BLOCK_ROWS];

    multiply(call, room, false, true, b.rows, b.keys, a->head_size, call->scale, q, k, false, scores);
    for (int64_t i = 0; i < b.rows; i++) {
        float *row = row_of(scores, i);
        const int64_t from = first_seen(&b, i), end = a->past + b.first + i + 1;
        const float largest = call->kernels->max(end - from, row + from);
        const double sum = call->kernels->exp_sum(end - from, row + from, largest, row + from);
        if (a->dropout) {
            const shd_mask_row dropped = mask_of(&b, i);
            call->kernels->drop(&dropped, from, end - from, row + from);
        }
        mask(row, from, end, b.keys);
        inverse_sum[i] = (float)(1.0 / sum);
        a->log_sum[b.log_sum_at + i] = (float)((double)largest + log(sum));
    }
    const matrix p = operand_of(call, scores, b.rows, b.keys);
    const matrix out = rows_to_write(call, a->out, b.out_at, a->out_stride, room + l->out);
    multiply(call, room, false, false, b.rows, a->head_size, b.keys, 1.0f, p, v, false, out);
    write_rows(call, out, inverse_sum, b.rows, a->out, b.out_at, a->out_stride);
}

static attention_call prepare(const shd_math *math, const shd_attention *attention, bool backward) {
    return (attention_call){
        .a = attention,
        .kernels = shd_kernels_get(math->dtype),
        .float_kernels = shd_kernels_get(SHERD_FP32),
        .dtype = math->dtype,
        .layout = lay_out(math->dtype, attention->past + attention->context, attention->head_size, backward),
        .scale = (float)(1.0 / sqrt((double)attention->head_size)),
        .block_count = shd_div_ceil(attention->context, BLOCK_ROWS),
    };
}

void shd_op_attention(const shd_math *math, const shd_attention *attention) {
    attention_call call = prepare(math, attention, false);
    shd_pool_run(math->pool, forward_task, &call, attention->sequences * attention->heads * call.block_count);
}

/* Keys and values of one head of a sequence, and their gradients. */
typedef struct key_side {
    matrix k, v, dk, dv;
} key_side;

/* p and ds of a block: probabilities, and the scores' gradient, of which dp comes in. */
static void softmax_backward(const attention_call *call, const query_block *b, matrix p, matrix ds) {
    const shd_attention *a = call->a;
    for (int64_t i = 0; i < b->rows; i++) {
        float *p_row = row_of(p, i), *ds_row = row_of(ds, i);
        const int64_t from = first_seen(b, i), end = b->first + i + 1, out_at = b->out_at + i * a->out_stride;
        const float mean = call->kernels->dot(a->head_size, shd_const_element(call->dtype, call->dout, out_at),
                                              shd_const_element(call->dtype, a->out, out_at));
        const float log_sum = a->log_sum[b->log_sum_at + i];
        if (a->dropout) {
            const shd_mask_row dropped = mask_of(b, i);
            call->kernels->softmax_dropout_backward(&dropped, from, end - from, log_sum, mean, call->scale,
                                                    p_row + from, ds_row + from);
        } else {
            call->kernels->softmax_backward(end - from, log_sum, mean, call->scale, p_row + from, ds_row + from);
        }
        mask(p_row, from, end, b->keys);
        mask(ds_row, from, end, b->keys);
    }
}

/* Adds one block to dk and dv, or writes them, and writes its rows of dq. */
static void block_backward(const attention_call *call, const query_block *b, bool first, const key_side *keys,
                           char *room) {
    const shd_attention *a = call->a;
    const layout *l = &call->layout;
    const int64_t size = a->head_size;
    const matrix scores = {SHERD_FP32, room + l->scores, score_stride(a->context)};
    const matrix dscores = {SHERD_FP32, room + l->dscores, score_stride(a->context)};
    const matrix q = read_rows(call, a->q, b->q_at, a->q_stride, b->rows, room + l->q);
    const matrix dout = read_rows(call, call->dout, b->out_at, a->out_stride, b->rows, room + l->dout);

    multiply(call, room, false, true, b->rows, b->keys, size, call->scale, q, keys->k, false, scores);
    multiply(call, room, false, true, b->rows, b->keys, size, 1.0f, dout, keys->v, false, dscores);
    softmax_backward(call, b, scores, dscores);
    const matrix p = operand_of(call, scores, b->rows, b->keys), ds = operand_of(call, dscores, b->rows, b->keys);
    multiply(call, room, true, false, b->keys, size, b->rows, 1.0f, p, dout, !first, keys->dv);
    multiply(call, room, true, false, b->keys, size, b->rows, 1.0f, ds, q, !first, keys->dk);
    const matrix dq = rows_to_write(call, call->dq, b->q_at, a->q_stride, room + l->dq);
    multiply(call, room, false, false, b->rows, size, b->keys, 1.0f, ds, keys->k, false, dq);
    write_rows(call, dq, NULL, b->rows, call->dq, b->q_at, a->q_stride);
}

static void backward_task(void *argument, int64_t index, int32_t worker) {
    const attention_call *call = argument;
    const shd_attention *a = call->a;
    const layout *l = &call->layout;
    char *room = room_of(call, worker);
    const int64_t sequence = index / a->kv_heads, kv_head = index % a->kv_heads, group = a->heads / a->kv_heads;
    const int64_t at = sequence * a->context * a->kv_stride + kv_head * a->head_size;
    const key_side keys = {
        .k = read_rows(call, a->k, at, a->kv_stride, a->context, room + l->k),
        .v = read_rows(call, a->v, at, a->kv_stride, a->context, room + l->v),
        .dk = rows_to_write(call, call->dk, at, a->kv_stride, room + l->dk),
        .dv = rows_to_write(call, call->dv, at, a->kv_stride, room + l->dv),
    };
    bool first = true;
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++)
        for (int64_t block = call->block_count - 1; block >= 0; block--) {
            const query_block b = block_of(call, sequence, head, block);
            block_backward(call, &b, first, &keys, room);
            first = false;
        }
    write_rows(call, keys.dk, NULL, a->context, call->dk, at, a->kv_stride);
    write_rows(call, keys.dv, NULL, a->context, call->dv, at, a->kv_stride);
}

void shd_op_attention_backward(const shd_math *math, const shd_attention *forward, const void *dout, void *dq, void *dk,
                               void *dv) {
    attention_call call = prepare(math, forward, true);
    call.dout = dout;
    call.dq = dq;
    call.dk = dk;
    call.dv = dv;
    shd_pool_run(math->pool, backward_task, &call, forward->sequences * forward->kv_heads);
}
