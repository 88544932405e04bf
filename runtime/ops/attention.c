/* Causal attention in blocks of query rows: a block's scores against all keys up to its last row, in one thread's
 * scratch memory.
 *
 * Forward: one task a (sequence, head, block). Backward: one task a (sequence, key-value head), which walks the query
 * heads of its group in order and each head's blocks from the last to the first. The last block meets every key, so the
 * first product writes all of dk and dv and all others add to them: no clearing, no atomics, one order. Probabilities
 * are computed again from log_sum. FlashAttention-2 (Dao 2023) gives the formulas: D = rowsum(dout∘out), dS = P∘(dP −
 * D)·scale. */
#include "runtime/ops/ops.h"

#include "runtime/ops/cut.h"
#include "runtime/ops/kernels/kernels.h"
#include "runtime/ops/product.h"

#include <math.h>
#include <string.h>

enum { BLOCK_ROWS = 64, ALIGNMENT = 64 };

/* Rows of scores are an odd number of cache lines apart, so that a column of them does not fall into one cache set. */
static int64_t score_stride(int64_t context) { return shd_round_up(context, 32) + 16; }

/* One matrix of scores: a block of query rows against every key. */
static int64_t score_count(int64_t context) { return shd_min(BLOCK_ROWS, context) * score_stride(context); }

int64_t shd_op_attention_scratch_bytes(sherd_dtype dtype, int64_t context, int64_t head_size, int32_t threads) {
    (void)dtype, (void)head_size;
    return shd_round_up(score_count(context) * (int64_t)sizeof(float), ALIGNMENT) * threads;
}

int64_t shd_op_attention_backward_scratch_bytes(sherd_dtype dtype, int64_t context, int64_t head_size,
                                                int32_t threads) {
    return 2 * shd_op_attention_scratch_bytes(dtype, context, head_size, threads);
}

typedef struct attention_call {
    const shd_attention *a;
    const shd_kernels *kernels;
    sherd_dtype dtype;
    float scale;         /* 1/√head_size */
    int64_t block_count; /* of a sequence */
    const float *q, *k, *v, *dout;
    float *out, *dq, *dk, *dv;
} attention_call;

/* A block of query rows of one head. */
typedef struct query_block {
    int64_t first, rows, keys; /* keys [0, past + first + rows) */
    int64_t q_at, kv_at, out_at, log_sum_at;
    const int32_t *starts; /* of the rows, or NULL */
} query_block;

/* The first key that row `row` of the block sees. */
static int64_t first_seen(const query_block *b, int64_t row) { return b->starts ? b->starts[row] : 0; }

static query_block block_of(const attention_call *call, int64_t sequence, int64_t head, int64_t block) {
    const shd_attention *a = call->a;
    query_block b;
    b.first = shd_piece(a->context, BLOCK_ROWS, block, &b.rows);
    b.keys = a->past + b.first + b.rows;
    const int64_t row = sequence * a->context, kv_head = head / (a->heads / a->kv_heads);
    b.q_at = (row + b.first) * a->q_stride + head * a->head_size;
    b.kv_at = sequence * (a->past + a->context) * a->kv_stride + kv_head * a->head_size;
    b.out_at = (row + b.first) * a->out_stride + head * a->head_size;
    b.log_sum_at = (sequence * a->heads + head) * a->context + b.first;
    b.starts = a->starts ? a->starts + row + b.first : NULL;
    return b;
}

/* Zeroes the keys of a row that are before `from` or not before `end`. */
static void mask(float *row, int64_t from, int64_t end, int64_t keys) {
    memset(row, 0, sizeof(float) * (size_t)from);
    memset(row + end, 0, sizeof(float) * (size_t)(keys - end));
}

/* scores = scale·q·kᵀ of a block, the masked part included. */
static void block_scores(const attention_call *call, const query_block *b, float *scores) {
    const shd_attention *a = call->a;
    shd_product_run(false, true, b->rows, b->keys, a->head_size, call->scale, call->q + b->q_at, a->q_stride,
                    call->k + b->kv_at, a->kv_stride, false, scores, score_stride(a->past + a->context));
}

static void forward_task(void *argument, int64_t index, int32_t worker) {
    const attention_call *call = argument;
    const shd_attention *a = call->a;
    /* The longest blocks first, so that no thread ends with one alone. */
    const int64_t block = call->block_count - 1 - index / (a->sequences * a->heads);
    const int64_t pair = index % (a->sequences * a->heads);
    const query_block b = block_of(call, pair / a->heads, pair % a->heads, block);
    const int64_t stride = score_stride(a->past + a->context);
    float *scores = (float *)((char *)a->scratch + worker * shd_op_attention_scratch_bytes(
                                                                call->dtype, a->past + a->context, a->head_size, 1));
    float inverse_sum[BLOCK_ROWS];

    block_scores(call, &b, scores);
    for (int64_t i = 0; i < b.rows; i++) {
        float *row = scores + i * stride;
        const int64_t from = first_seen(&b, i), end = a->past + b.first + i + 1;
        const float largest = call->kernels->max(end - from, row + from);
        const double sum = call->kernels->exp_sum(end - from, row + from, largest, row + from);
        mask(row, from, end, b.keys);
        inverse_sum[i] = (float)(1.0 / sum);
        a->log_sum[b.log_sum_at + i] = (float)((double)largest + log(sum));
    }
    float *out = call->out + b.out_at;
    shd_product_run(false, false, b.rows, a->head_size, b.keys, 1.0f, scores, stride, call->v + b.kv_at, a->kv_stride,
                    false, out, a->out_stride);
    for (int64_t i = 0; i < b.rows; i++)
        call->kernels->scale(a->head_size, inverse_sum[i], out + i * a->out_stride, out + i * a->out_stride);
}

static attention_call prepare(const shd_math *math, const shd_attention *attention) {
    return (attention_call){.a = attention,
                            .kernels = shd_kernels_get(),
                            .dtype = math->dtype,
                            .q = attention->q,
                            .k = attention->k,
                            .v = attention->v,
                            .out = attention->out,
                            .scale = (float)(1.0 / sqrt((double)attention->head_size)),
                            .block_count = shd_div_ceil(attention->context, BLOCK_ROWS)};
}

void shd_op_attention(const shd_math *math, const shd_attention *attention) {
    attention_call call = prepare(math, attention);
    shd_pool_run(math->pool, forward_task, &call, attention->sequences * attention->heads * call.block_count);
}

/* Adds one block to dk and dv, or writes them, and writes its rows of dq. */
static void block_backward(const attention_call *call, const query_block *b, bool first, float *p, float *ds) {
    const shd_attention *a = call->a;
    const int64_t stride = score_stride(a->context), size = a->head_size;
    const float *dout = call->dout + b->out_at;
    block_scores(call, b, p);
    shd_product_run(false, true, b->rows, b->keys, size, 1.0f, dout, a->out_stride, call->v + b->kv_at, a->kv_stride,
                    false, ds, stride);
    for (int64_t i = 0; i < b->rows; i++) {
        float *p_row = p + i * stride, *ds_row = ds + i * stride;
        const int64_t from = first_seen(b, i), end = b->first + i + 1;
        const float mean =
            call->kernels->dot(size, dout + i * a->out_stride, call->out + b->out_at + i * a->out_stride);
        call->kernels->softmax_backward(end - from, a->log_sum[b->log_sum_at + i], mean, call->scale, p_row + from,
                                        ds_row + from);
        mask(p_row, from, end, b->keys);
        mask(ds_row, from, end, b->keys);
    }
    shd_product_run(true, false, b->keys, size, b->rows, 1.0f, p, stride, dout, a->out_stride, !first,
                    call->dv + b->kv_at, a->kv_stride);
    shd_product_run(true, false, b->keys, size, b->rows, 1.0f, ds, stride, call->q + b->q_at, a->q_stride, !first,
                    call->dk + b->kv_at, a->kv_stride);
    shd_product_run(false, false, b->rows, size, b->keys, 1.0f, ds, stride, call->k + b->kv_at, a->kv_stride, false,
                    call->dq + b->q_at, a->q_stride);
}

static void backward_task(void *argument, int64_t index, int32_t worker) {
    const attention_call *call = argument;
    const shd_attention *a = call->a;
    const int64_t sequence = index / a->kv_heads, kv_head = index % a->kv_heads, group = a->heads / a->kv_heads;
    const int64_t bytes = shd_op_attention_scratch_bytes(call->dtype, a->context, a->head_size, 1);
    char *scratch = (char *)a->scratch + 2 * worker * bytes;
    bool first = true;
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++)
        for (int64_t block = call->block_count - 1; block >= 0; block--) {
            const query_block b = block_of(call, sequence, head, block);
            block_backward(call, &b, first, (float *)scratch, (float *)(scratch + bytes));
            first = false;
        }
}

void shd_op_attention_backward(const shd_math *math, const shd_attention *forward, const void *dout, void *dq, void *dk,
                               void *dv) {
    attention_call call = prepare(math, forward);
    call.dout = dout;
    call.dq = dq;
    call.dk = dk;
    call.dv = dv;
    shd_pool_run(math->pool, backward_task, &call, forward->sequences * forward->kv_heads);
}
