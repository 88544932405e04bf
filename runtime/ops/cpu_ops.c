/* The table of what runs on the CPU. */
#include "runtime/base/arith.h"
#include "runtime/base/dtype.h"
#include "runtime/ops/ops.h"

#include <string.h>

void shd_op_narrow(const shd_math *math, int64_t count, const float *x, void *y) {
    shd_round(math->dtype, count, x, y);
}

void shd_op_join_rows(const shd_math *math, int64_t rows, int64_t columns, void *x) {
    const int64_t row_bytes = columns * shd_dtype_bytes(math->dtype), apart_bytes = columns * (int64_t)sizeof(float);
    char *first = x;
    /* Each to before where it was. */
    for (int64_t i = 1; row_bytes < apart_bytes && i < rows; i++)
        memmove(first + i * row_bytes, first + i * apart_bytes, (size_t)row_bytes);
}

/* A block of scores a thread, whatever the number of sequences and heads. */
static int64_t attention_scratch_bytes(sherd_dtype dtype, int64_t sequences, int64_t context, int64_t heads,
                                       int64_t head_size, int32_t threads, bool backward) {
    (void)sequences, (void)heads;
    return backward ? shd_op_attention_backward_scratch_bytes(dtype, context, head_size, threads)
                    : shd_op_attention_scratch_bytes(dtype, context, head_size, threads);
}

const shd_ops shd_ops_cpu = {
    .name = "cpu",
    .matmul_scratch_bytes = shd_op_matmul_scratch_bytes,
    .attention_scratch_bytes = attention_scratch_bytes,
    .matmul = shd_op_matmul,
    .column_sum = shd_op_column_sum,
    .layernorm = shd_op_layernorm,
    .layernorm_backward = shd_op_layernorm_backward,
    .rmsnorm = shd_op_rmsnorm,
    .rmsnorm_backward = shd_op_rmsnorm_backward,
    .gelu = shd_op_gelu,
    .gelu_backward = shd_op_gelu_backward,
    .relu = shd_op_relu,
    .relu_backward = shd_op_relu_backward,
    .swiglu = shd_op_swiglu,
    .swiglu_backward = shd_op_swiglu_backward,
    .rope = shd_op_rope,
    .embedding = shd_op_embedding,
    .embedding_backward = shd_op_embedding_backward,
    .attention = shd_op_attention,
    .attention_backward = shd_op_attention_backward,
    .dropout = shd_op_dropout,
    .cross_entropy = shd_op_cross_entropy,
    .correct = shd_op_correct,
    .square_error = shd_op_square_error,
    .add_bias = shd_op_add_bias,
    .narrow = shd_op_narrow,
    .join_rows = shd_op_join_rows,
};
