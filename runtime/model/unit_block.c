/* A transformer block, forward and backward, for every family; what is kept between the two is in units.h's table. */
#include "runtime/base/dtype.h"
#include "runtime/model/units.h"
#include "runtime/ops/ops.h"

#include <string.h>

/* A block's activations, and the lengths it works with. */
typedef struct block {
    const void *x;
    void *projected, *attended, *mid, *inner[SHD_MAX_INNERS], *out;
    float *log_sum;
    int64_t rows, model, width, inner_length; /* width: of a row of `projected` */
} block;

static block block_open(const shd_pass *pass) {
    const shd_model *model = pass->model;
    const shd_layout *layout = pass->layout;
    char *kept = pass->view->activations[pass->view->unit], *remade = pass->view->remade[pass->view->unit];
    return (block){
        .x = shd_pass_input(pass),
        .projected = remade + layout->remade.projected,
        .attended = remade + layout->remade.attended,
        .log_sum = (float *)(remade + layout->remade.log_sum),
        .mid = kept + layout->kept.mid,
        .inner = {kept + layout->kept.inner[0], kept + layout->kept.inner[1]},
        .out = pass->view->outputs[pass->view->unit],
        .rows = pass->rows,
        .model = model->lengths[SHD_LENGTH_MODEL],
        .width = model->lengths[SHD_LENGTH_PROJECTED],
        .inner_length = model->lengths[SHD_LENGTH_INNER],
    };
}

/* Turns queries and keys, side by side at the start of each row, by their positions; `inverse` for their gradients. */
static void rotate(const shd_pass *pass, void *rows_of_projections, bool inverse) {
    const shd_model *model = pass->model;
    if (!model->family->rotary) return;
    pass->math.ops->rope(&pass->math, pass->rows, pass->length, model->config.n_head + model->config.n_kv_head,
                         model->head_size, model->lengths[SHD_LENGTH_PROJECTED],
                         pass->rope_table + pass->past * model->head_size, inverse, rows_of_projections);
}

/* Where keys and values begin in a row of projections, or in one of their gradients. */
typedef struct projections {
    void *q, *k, *v;
} projections;

static projections projections_at(const shd_pass *pass, void *rows) {
    const int64_t queries = pass->model->lengths[SHD_LENGTH_MODEL], keys = pass->model->lengths[SHD_LENGTH_KEYS];
    return (projections){rows, shd_element(pass->math.dtype, rows, queries),
                         shd_element(pass->math.dtype, rows, queries + keys)};
}

static shd_attention attention_of(const shd_pass *pass, const block *b) {
    const shd_model *model = pass->model;
    const projections p = projections_at(pass, b->projected);
    return (shd_attention){
        .sequences = pass->sequences,
        .context = pass->length,
        .heads = model->config.n_head,
        .kv_heads = model->config.n_kv_head,
        .head_size = model->head_size,
        .q = p.q,
        .k = p.k,
        .v = p.v,
        .q_stride = b->width,
        .kv_stride = b->width,
        .out = b->attended,
        .out_stride = b->model,
        .log_sum = b->log_sum,
        .scratch = pass->math.scratch,
        .starts = pass->batch.document_starts,
    };
}

/* Adds the run's keys and values to the cache, and points attention at all that is there. */
static void continue_from_cache(const shd_pass *pass, const block *b, shd_attention *attention) {
    int64_t keys = pass->model->lengths[SHD_LENGTH_KEYS], pair = 2 * keys;
    const sherd_dtype dtype = pass->math.dtype;
    for (int64_t i = 0; i < b->rows; i++)
        memcpy(shd_element(dtype, pass->cache, (pass->past + i) * pair),
               shd_element(dtype, b->projected, i * b->width + b->model), (size_t)(pair * shd_dtype_bytes(dtype)));
    attention->past = pass->past;
    attention->k = pass->cache;
    attention->v = shd_element(dtype, pass->cache, keys);
    attention->kv_stride = pair;
}

/* y = residual + what dropout leaves of the product of x with the weight at `slot`. */
static void add_branch(const shd_pass *pass, const block *b, int32_t slot, shd_dropout_place place, const void *x,
                       const void *residual, void *y) {
    shd_linear linear = shd_pass_linear(pass, slot);
    shd_dropout dropout;
    bool drops = shd_pass_dropout(pass, place, &dropout);
    shd_linear_forward(&pass->math, &linear, b->rows, x, y, b->model, drops ? NULL : residual);
    if (drops) pass->math.ops->dropout(&pass->math, &dropout, b->rows, pass->length, b->model, y, residual, y);
}

/* The gradient of the product in add_branch: flow, or what dropout leaves of it, in `room` [rows, model]. */
static const void *branch_gradient(const shd_pass *pass, const block *b, shd_dropout_place place, void *room) {
    shd_dropout dropout;
    if (!shd_pass_dropout(pass, place, &dropout)) return pass->flow;
    pass->math.ops->dropout(&pass->math, &dropout, b->rows, pass->length, b->model, pass->flow, NULL, room);
    return room;
}

void shd_block_forward(const shd_pass *pass) {
    const shd_family *family = pass->model->family;
    block b = block_open(pass);

    shd_norm_forward(pass, family->norm_1_slot, b.rows, b.x, pass->normed);
    void *column = b.projected;
    for (int32_t i = 0; i < family->projection_count; i++) {
        shd_linear projection = shd_pass_linear(pass, family->projection_slots[i]);
        shd_linear_forward(&pass->math, &projection, b.rows, pass->normed, column, b.width, NULL);
        column = shd_element(pass->math.dtype, column, projection.out);
    }
    rotate(pass, b.projected, false);
    shd_dropout dropout;
    shd_attention attention = attention_of(pass, &b);
    if (shd_pass_dropout(pass, SHD_DROPOUT_ATTENTION, &dropout)) attention.dropout = &dropout;
    if (pass->cache) continue_from_cache(pass, &b, &attention);
    pass->math.ops->attention(&pass->math, &attention);
    if (pass->view->part_again) return; /* the rest of what backward reads is still there */
    add_branch(pass, &b, family->attention_out_slot, SHD_DROPOUT_ATTENTION_OUT, b.attended, b.x, b.mid);

    shd_norm_forward(pass, family->norm_2_slot, b.rows, b.mid, pass->normed);
    for (int32_t i = 0; i < family->inner_count; i++) {
        shd_linear inner = shd_pass_linear(pass, family->inner_slots[i]);
        shd_linear_forward(&pass->math, &inner, b.rows, pass->normed, b.inner[i], b.inner_length, NULL);
    }
    if (pass->view->again) return; /* backward needs no more, and the output is still there */
    family->activate(&pass->math, b.rows * b.inner_length, b.inner, pass->wide);
    add_branch(pass, &b, family->down_slot, SHD_DROPOUT_DOWN, pass->wide, b.mid, b.out);
}

/* Backward through the linears at `slots`, which all read `normed`: from the gradients of their outputs, those of
 * their weights and, over `normed` itself, that of their input. */
static void fan_backward(const shd_pass *pass, int64_t rows, int32_t count, const int32_t *slots,
                         const void *const *gradients, int64_t stride) {
    for (int32_t i = 0; i < count; i++) {
        shd_linear linear = shd_pass_linear(pass, slots[i]);
        shd_linear_backward_weight(&pass->math, &linear, rows, pass->normed, gradients[i], stride, false);
    }
    for (int32_t i = 0; i < count; i++) {
        shd_linear linear = shd_pass_linear(pass, slots[i]);
        shd_linear_backward_input(&pass->math, &linear, rows, gradients[i], stride, pass->normed, i > 0);
    }
}

/* flow: the gradient of out on entry, of mid on return. */
static void feed_forward_backward(const shd_pass *pass, const block *b) {
    const shd_family *family = pass->model->family;
    int64_t count = b->rows * b->inner_length;

    family->activate(&pass->math, count, b->inner, pass->wide);
    shd_linear down = shd_pass_linear(pass, family->down_slot);
    const void *ddown = branch_gradient(pass, b, SHD_DROPOUT_DOWN, pass->normed);
    shd_linear_backward_weight(&pass->math, &down, b->rows, pass->wide, ddown, b->model, false);
    shd_linear_backward_input(&pass->math, &down, b->rows, ddown, b->model, pass->wide, false);
    family->activate_backward(&pass->math, count, b->inner, pass->wide);

    const void *gradients[SHD_MAX_INNERS] = {pass->wide, b->inner[1]};
    shd_norm_forward(pass, family->norm_2_slot, b->rows, b->mid, pass->normed);
    fan_backward(pass, b->rows, family->inner_count, family->inner_slots, gradients, b->inner_length);
    shd_norm_backward(pass, family->norm_2_slot, b->mid, pass->normed, true);
}

/* flow: the gradient of mid on entry, of x on return. */
static void attention_backward(const shd_pass *pass, const block *b) {
    const shd_family *family = pass->model->family;

    shd_linear out = shd_pass_linear(pass, family->attention_out_slot);
    const void *dout = branch_gradient(pass, b, SHD_DROPOUT_ATTENTION_OUT, pass->wide);
    shd_linear_backward_weight(&pass->math, &out, b->rows, b->attended, dout, b->model, false);
    shd_linear_backward_input(&pass->math, &out, b->rows, dout, b->model, pass->normed, false);
    shd_dropout dropout;
    shd_attention attention = attention_of(pass, b);
    if (shd_pass_dropout(pass, SHD_DROPOUT_ATTENTION, &dropout)) attention.dropout = &dropout;
    const projections d = projections_at(pass, pass->wide);
    pass->math.ops->attention_backward(&pass->math, &attention, pass->normed, d.q, d.k, d.v);
    rotate(pass, pass->wide, true);

    shd_norm_forward(pass, family->norm_1_slot, b->rows, b->x, pass->normed);
    const void *gradients[SHD_MAX_PROJECTIONS] = {d.q, d.k, d.v}; /* one fused projection has them side by side */
    fan_backward(pass, b->rows, family->projection_count, family->projection_slots, gradients, b->width);
    shd_norm_backward(pass, family->norm_1_slot, b->x, pass->normed, true);
}

void shd_block_backward(const shd_pass *pass) {
    block b = block_open(pass);
    feed_forward_backward(pass, &b);
    attention_backward(pass, &b);
}
