/* The table of spans on CUDA: from the calls of spans.h to launches. */
#include "optim/cuda/launch_spans.h"
#include "optim/spans.h"
#include "optim/update_kernels.h"
#include "runtime/device/cuda.h"

#include <assert.h>
#include <string.h>

static shd_span_rule rule_of(const sherd_optimizer *optimizer) {
    switch (optimizer->kind) {
    case SHERD_ADAMW:
    case SHERD_MUON: return SHD_SPAN_ADAMW;
    case SHERD_ADAM: return SHD_SPAN_ADAM;
    case SHERD_LION: return SHD_SPAN_LION;
    case SHERD_ADAFACTOR: /* has none: it needs whole tensors */
    case SHERD_SGD: break;
    }
    if (optimizer->momentum == 0) return SHD_SPAN_SGD;
    return optimizer->nesterov ? SHD_SPAN_SGD_NESTEROV : SHD_SPAN_SGD_MOMENTUM;
}

static void add_codes(const shd_update *update, int state, shd_span_codes *codes) {
    const shd_codebook *book = update->codebooks[state];
    codes->blocks[state] = update->state_blocks[state];
    codes->root[state] = book->root;
    memcpy(book->root ? codes->root_shares : codes->shares, book->shares,
           book->root ? sizeof codes->root_shares : sizeof codes->shares);
    memcpy(book->root ? codes->root_borders : codes->borders, book->borders,
           book->root ? sizeof codes->root_borders : sizeof codes->borders);
}

static cudaError_t launch_update(cudaStream_t stream, shd_span_rule rule, const shd_update *update,
                                 const shd_span_update *span) {
    if (!update->codebooks[0]) return shd_launch_update(stream, rule, span);
    shd_span_codes codes = {0};
    for (int s = 0; s < 2 && update->codebooks[s]; s++) add_codes(update, s, &codes);
    return shd_launch_update_codes(stream, rule, span, &codes);
}

static void update(shd_stream *stream, const sherd_optimizer *optimizer, const shd_update *update) {
    const shd_span_update span = {
        .constants = shd_update_constants_make(optimizer, update),
        .parameters = update->parameters,
        .gradients = update->gradients,
        .states = {update->states[0], update->states[1]},
        .rounded = update->rounded,
        .rounded_dtype = update->rounded_dtype,
        .count = update->count,
    };
    if (update->count == 0) return;
    shd_cuda_note(stream, launch_update(shd_cuda_stream(stream), rule_of(optimizer), update, &span), "an update");
}

static void square_sum(shd_stream *stream, const float *values, int64_t count, shd_exact_sum *sum) {
    assert(count % SHD_OPTIM_BLOCK_COUNT == 0);
    if (count == 0) return;
    shd_cuda_note(stream, shd_launch_square_sum(shd_cuda_stream(stream), values, count / SHD_OPTIM_BLOCK_COUNT, sum),
                  "a sum of squares");
}

static void round_span(shd_stream *stream, sherd_dtype dtype, int64_t count, const float *from, void *to) {
    if (count == 0) return;
    shd_cuda_note(stream, shd_launch_round(shd_cuda_stream(stream), dtype, count, from, to), "a rounding to 16 bits");
}

static void fold(shd_stream *stream, float *accumulator, const void *const *parts, int32_t part_count,
                 sherd_dtype dtype, int64_t count, bool first, uint64_t *nonfinite) {
    assert(part_count > 0 && part_count <= SHD_FOLD_PARTS);
    assert(dtype == SHERD_FP32 || dtype == SHERD_BF16);
    shd_fold_parts table = {.count = part_count};
    for (int32_t p = 0; p < part_count; p++) table.at[p] = parts[p];
    if (count == 0) return;
    shd_cuda_note(stream, shd_launch_fold(shd_cuda_stream(stream), accumulator, &table, dtype, count, first, nonfinite),
                  "a sum of gradients");
}

const shd_span_ops shd_spans_cuda = {.update = update, .square_sum = square_sum, .round = round_span, .fold = fold};
